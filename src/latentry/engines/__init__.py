"""Where shards are made: in this process, or by Ray's workers. What a shard holds is the job's; where it was made changes no byte."""
