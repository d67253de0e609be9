"""One message of bytes <-> (method, sequence id, struct), with every limit; structs <-> the model.

framing    where a message begins and ends in a stream
codec      a message <-> its name, sequence id and struct
header     the few bytes in front of the struct
walk       the careful reader: repeated fields, wrong types, invalid UTF-8, giant containers
layout     what the interface file says, in the form that the C codec and the walk read
idl        the interface file
methods    the calls: one table for servers, clients, metrics and docs
convert    structs <-> model
faults     errors <-> the exception of the interface
"""
