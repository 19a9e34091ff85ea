"""From a run's counters to what people, pull requests and programs read. Pure: values in, text or JSON out."""
