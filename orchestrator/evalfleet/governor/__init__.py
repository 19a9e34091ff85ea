"""Who may call which model when: rates and concurrency of each account, shared by the runs and workers that use it."""
