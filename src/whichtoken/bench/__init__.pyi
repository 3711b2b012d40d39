from whichtoken.bench._protocol import Protocol as Protocol
from whichtoken.bench._protocol import protocol as protocol
from whichtoken.bench._run import run as run
from whichtoken.bench.auto import best_method as best_method
from whichtoken.bench.auto import remember as remember
from whichtoken.bench.folder import read_table as read_table
from whichtoken.tables import BenchTable as BenchTable
