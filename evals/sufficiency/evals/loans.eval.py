"""Is a loan file complete? Ask for exactly what is missing, say why, and change nothing else."""

from loan_pack import PACK

from evalfleet import Dataset

loans = PACK.evals(Dataset.jsonl("data/loans.jsonl", id="id"), tags=["sufficiency"], timeout=60)
