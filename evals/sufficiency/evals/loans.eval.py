"""Is a loan file complete? Ask for exactly what is missing, say why, and change nothing else."""

from evalfleet import Dataset

from .loan_pack import PACK

loans = PACK.evals(Dataset.jsonl("data/loans.jsonl", id="id"), tags=["sufficiency"], timeout=60)
