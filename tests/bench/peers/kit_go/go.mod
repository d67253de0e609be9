module pinlater.bench/kit

go 1.19

require pinlater/workers/go v0.0.0

require github.com/apache/thrift v0.17.0 // indirect

replace pinlater/workers/go => ../../../../workers/go
