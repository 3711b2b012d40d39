"""Find the files of a model: in a folder, in the local cache, or on the hub, which is contacted once."""

from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from whichtoken.boundary import describe_failure
from whichtoken.errors import UsageError
from whichtoken.models.adapters import CONFIG as ADAPTER

CONFIG = "config.json"
WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
PATIENCE = 3.0  # seconds to wait for the hub if the model is in the cache, so that it can be read without the hub
ADAPTER_FILES = ["*.json", "*.safetensors", "adapter_model.bin", "*.txt", "*.model", "*.tiktoken", "*.jinja"]


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model are."""

    place: str | Path  # a folder, or a name on the hub
    revision: str | None = None
    title: str = ""  # what the caller asked for, if that is not the place itself
    has_adapter: bool = False  # (LoRA) of a model in the same folder, or of another one
    has_model: bool = True

    def __str__(self) -> str:
        return self.title or str(self.place)

    @property
    def is_adapter(self) -> bool:
        """Whether this is only an adapter, whose base model is elsewhere."""
        return self.has_adapter and not self.has_model

    def download_adapter(self) -> Path:
        """Return the folder of the adapter."""
        if _is_folder(self.place):
            return Path(self.place)
        name = str(self.place)
        return Path(snapshot_download(name, revision=self.revision, allow_patterns=ADAPTER_FILES))


def find_source(name: str | Path, revision: str | None = None) -> ModelFiles:
    """Return where the model is; raise UsageError at once, and with the fix, if it is nowhere.

    Transformers would try for half a minute to reach a hub that is out of reach, once for each file. So the hub is
    contacted once, and if it does not answer, a model in the local cache is read as a folder.
    """
    if _is_folder(name):
        return _look_into(Path(name), str(name))
    if isinstance(name, Path) or Path(name).is_absolute() or name.startswith((".", "~")):
        raise UsageError(
            f"there is no folder {name}{_suggest(name)}; give a folder of a Hugging Face model, or a hub name"
        )
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UsageError(
            f"{name!r} is neither a folder here nor a possible name on the hub{_suggest(name)}; give a folder, or a "
            "hub name such as owner/model"
        ) from error
    cached = _find_cached(name, revision)
    try:
        file = _contact_hub(name, revision, PATIENCE if cached else constants.HF_HUB_ETAG_TIMEOUT)
        return ModelFiles(name, revision, has_adapter=file == ADAPTER, has_model=file == CONFIG)
    except _NotThereError as error:
        if cached is not None:
            return _look_into(cached, name)
        asked = repr(name) if revision is None else f"{name!r} at revision {revision!r}"
        where = f"the local cache ({constants.HF_HUB_CACHE})"
        raise UsageError(
            f"{asked} is neither a folder here nor in {where}, and {error.why}{_suggest(name)}; {error.fix}"
        ) from error


def _look_into(folder: Path, title: str) -> ModelFiles:
    if not any((folder / file).is_file() for file in (CONFIG, ADAPTER)):
        inside = sorted(file.parent.name for name in (CONFIG, ADAPTER) for file in folder.glob(f"*/{name}"))
        hint = f"; did you mean {folder / inside[0]}?" if inside else ""
        raise UsageError(f"{title} has no {CONFIG}, so it is not the folder of a model{hint}")
    has_model = any(file for pattern in WEIGHTS for file in folder.glob(pattern))
    return ModelFiles(folder, None, title, (folder / ADAPTER).is_file(), has_model)


def _is_folder(name: str | Path) -> bool:
    try:
        return Path(name).is_dir()
    except OSError:  # the name is too long
        return False


def _find_cached(name: str, revision: str | None) -> Path | None:
    """Return the folder of a model from the hub in the local cache."""
    for file in (CONFIG, ADAPTER):
        found = try_to_load_from_cache(name, file, revision=revision, cache_dir=constants.HF_HUB_CACHE)
        if isinstance(found, str):
            return Path(found).parent
    return None


class _NotThereError(Exception):
    """Why a model cannot be had from the hub, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(f"{why}; {fix}")
        self.why, self.fix = why, fix


def _contact_hub(name: str, revision: str | None, timeout: float) -> str:
    """Return the file that the hub has of this model, a configuration or that of an adapter; ask once, no retries."""
    host = urlsplit(constants.ENDPOINT).netloc
    if constants.HF_HUB_OFFLINE:
        raise _NotThereError("HF_HUB_OFFLINE is set", "unset it, or give the folder of a downloaded model")
    try:
        for file in (CONFIG, ADAPTER):
            with suppress(EntryNotFoundError):
                get_hf_file_metadata(hf_hub_url(name, file, revision=revision), timeout=timeout)
                return file
    except RevisionNotFoundError as error:
        fix = "check the revision, or leave it out"
        raise _NotThereError(f"{host} has no revision {revision!r} of it", fix) from error
    except GatedRepoError as error:
        fix = "ask for access on its page, then log in: hf auth login"
        raise _NotThereError(f"on {host} it is gated", fix) from error
    except RepositoryNotFoundError as error:
        fix = "check the name; for a private model, log in: hf auth login"
        raise _NotThereError(f"{host} has no such model, or it is private", fix) from error
    except HfHubHTTPError as error:
        why = f"{host} answers with an error, {error.response.status_code}"
        raise _NotThereError(why, "try again later") from error
    except Exception as error:  # of the library that makes the connection, which depends on huggingface_hub's version
        parts = "the name and the connection" if revision is None else "the name, the revision and the connection"
        why = f"{host} cannot be reached ({describe_failure(error)})"
        raise _NotThereError(why, f"check {parts}, or give the folder of a downloaded model") from error
    raise _NotThereError(f"{host} has it, but without {CONFIG}", "give a model in the format of transformers")


def _suggest(name: str | Path) -> str:
    """Return a hint to a folder with a similar name, or an empty string."""
    wanted = Path(str(name).replace("\0", ""))
    try:
        folders = {entry.name: entry for entry in wanted.parent.iterdir() if entry.is_dir()}
    except OSError:
        return ""
    nearest = get_close_matches(wanted.name, folders, n=1)
    return f" (did you mean the folder {str(folders[nearest[0]])!r}?)" if nearest else ""
