"""One message of bytes <-> (method, sequence id, struct), with every limit; structs <-> the model.

framing            where a message begins and ends in a stream
message            bounds, header and errors of one message
codec              a message <-> its name, sequence id and struct
validator          the careful reader: repeated fields, wrong types, invalid UTF-8, giant containers
interface          the interface file, its structs and methods in the forms that codec and validator read
methods            the calls: one table for servers, clients, metrics and docs
struct_map         structs <-> model, derived from the fields of both
convert            what is no copy: acks, dequeues, checkpoints, and what older servers answer
dequeue_response   the answer to a dequeue, put together without the codec
faults             errors <-> the exception of the interface
"""
