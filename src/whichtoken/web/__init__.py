"""The web page of `whichtoken serve`, and the server behind it; the only folder that imports FastAPI and uvicorn."""
