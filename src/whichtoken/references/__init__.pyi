from whichtoken.references._build import build as build
from whichtoken.references._build import load as load
from whichtoken.references.library import ReferenceLibrary as ReferenceLibrary
from whichtoken.references.recipe import Recipe as Recipe
from whichtoken.references.store import save as save
