from whichtoken import bench as bench
from whichtoken import data as data
from whichtoken import heads as heads
from whichtoken import jobs as jobs
from whichtoken import metrics as metrics
from whichtoken import plot as plot
from whichtoken import references as references
from whichtoken import vision as vision
from whichtoken._explain import explain as explain
from whichtoken._explain import explain_each as explain_each
from whichtoken.core.registry import method as method
from whichtoken.core.registry import method_names as method_names
from whichtoken.errors import WhichTokenError as WhichTokenError
from whichtoken.evaluate import degrade as degrade
from whichtoken.models.loading import load as load
from whichtoken.models.subject import Subject as Subject
from whichtoken.records import Attribution as Attribution
from whichtoken.records import Curve as Curve
from whichtoken.results import Results as Results
from whichtoken.targets import Class as Class
from whichtoken.targets import Contrast as Contrast
from whichtoken.targets import Generation as Generation
from whichtoken.targets import Span as Span
from whichtoken.targets import TokenLabels as TokenLabels

__version__: str
