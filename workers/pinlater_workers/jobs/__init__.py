"""A job: its type, arguments, retry policy and settings; its context while it runs; its outcome.

job_type         a function as a type of job
enqueue_options  the ways to enqueue it                            enqueue_calls  the calls that store jobs
arguments        the arguments that the function takes
settings         what decorators and files say of a type of job    retry_text     policies as text
retry            when a failed job is tried again (pure)
context          what a running job asks and says
outcome          how an attempt ends, and what a job raises to say so
"""
