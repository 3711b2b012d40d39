from whichtoken.jobs._corpus import CorpusManifest as CorpusManifest
from whichtoken.jobs._corpus import ExplainOptions as ExplainOptions
from whichtoken.jobs._corpus import explain_corpus as explain_corpus
from whichtoken.jobs._corpus import read_manifest as read_manifest
from whichtoken.jobs.explaining import ModelChoice as ModelChoice
from whichtoken.jobs.files import CorpusFiles as CorpusFiles
from whichtoken.jobs.work import Engine as Engine
