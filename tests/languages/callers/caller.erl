%% The scenario of tests/languages/scenario.py, through Apache's library for Erlang (of its source).
%% erl -noshell -eval "caller:main(init:get_plain_arguments())." -extra HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
-module(caller).
-export([main/1]).
-include("pinlater_types.hrl").

main([Host, Port, Framing, Protocol, Ca, Cert, Key, Token, Queue, Password]) ->
    logger:set_primary_config(level, none),
    put(caller, #'RequestContext'{source = "caller", token = given(Token)}),
    put(queue, Queue),
    put(open, fun() -> open(Host, list_to_integer(Port), Framing, Protocol, Ca, Cert, Key) end),
    try
        (get(open))(),
        run(Queue, Password),
        thrift_client:close(get(client)),
        halt(0)
    catch
        throw:#'PinLaterException'{reason = Reason} ->
            say("REFUSED", [Reason]),
            halt(0);
        _:Why ->
            io:format(standard_error, "~p~n", [Why]),
            halt(1)
    end.

given("-") -> undefined;
given(Value) -> Value.

open(Host, Port, Framing, Protocol, Ca, Cert, Key) ->
    Options = [{framed, Framing =:= "framed"}, {protocol, list_to_atom(Protocol)} | secured(Host, Ca, Cert, Key)],
    {ok, Client} = thrift_client_util:new(Host, Port, pin_later_thrift, Options),
    put(client, Client).

%% Without recv_timeout where there is TLS: the library knows no such option there.
secured(_, "-", _, _) ->
    [{recv_timeout, 30000}];
secured(Host, Ca, Cert, Key) ->
    {ok, _} = application:ensure_all_started(ssl),
    Shown = case Cert of "-" -> []; _ -> [{certfile, Cert}, {keyfile, Key}] end,
    Trusted = [{verify, verify_peer}, {cacertfile, Ca}, {server_name_indication, Host}],
    [{ssltransport, true}, {ssloptions, Trusted ++ Shown}].

%% The answer, or an exception of the interface file thrown; an error where the connection is broken.
call(Name, Arguments) ->
    try thrift_client:call(get(client), Name, [get(caller) | Arguments]) of
        {Client, {ok, Answer}} ->
            put(client, Client),
            Answer;
        {_, {error, Why}} ->
            error({broken, Why})
    catch
        {Client, {exception, Exception}} ->
            put(client, Client),
            throw(Exception)
    end.

say(Step, Words) ->
    Texts = [text(Word) || Word <- [Step | Words]],
    ok = file:write(standard_io, [lists:join(" ", Texts), "\n"]).

text(true) -> "1";
text(false) -> "0";
text(undefined) -> "";
text(Number) when is_integer(Number) -> integer_to_list(Number);
text(Number) when is_float(Number) -> io_lib:format("~.1f", [Number]);
text(Text) -> Text.

hex(Bytes) -> [io_lib:format("~2.16.0b", [Byte]) || <<Byte>> <= Bytes].

enqueue(Into, Job) ->
    call(enqueueJobs, [#'PinLaterEnqueueRequest'{queueName = Into, jobs = [Job]}]).

stored(Job) ->
    #'PinLaterEnqueueResponse'{jobDescriptors = [Descriptor]} = enqueue(get(queue), Job),
    Descriptor.

lookup(Descriptor) ->
    Asked = #'PinLaterLookupJobRequest'{jobDescriptors = [Descriptor], includeBody = true, includeResult = true},
    dict:fetch(Descriptor, call(lookupJobs, [Asked])).

count(Future) ->
    Pending = ?PINLATER_PINLATERJOBSTATE_PENDING,
    Asked = #'PinLaterGetJobCountRequest'{queueName = get(queue), jobState = Pending, countFutureJobs = Future},
    call(getJobCount, [Asked]).

dequeue(Limit) ->
    Asked = #'PinLaterDequeueRequest'{
        queueName = get(queue), limit = Limit, waitMillis = 1000, claimTimeoutMillis = 600000
    },
    call(dequeueJobs, [Asked]).

is_in_queues() ->
    sets:is_element(list_to_binary(get(queue)), call(getQueueNames, [])).

ack(Step, Succeeded, Failed) ->
    Asked = #'PinLaterJobAckRequest'{queueName = get(queue), jobsSucceeded = Succeeded, jobsFailed = Failed},
    #'AckJobsResponse'{outcomes = Outcomes} = call(ackJobs, [Asked]),
    say(Step, Outcomes).

ack_of(Descriptor, #'PinLaterDequeueResponse'{jobMetadata = Metadata}) ->
    #'PinLaterDequeueMetadata'{claimDescriptor = Claim} = dict:fetch(Descriptor, Metadata),
    #'PinLaterJobAckInfo'{jobDescriptor = Descriptor, claimDescriptor = Claim}.

pause(Step) ->
    say([Step, "?"], []),
    _ = io:get_line(""),
    try count(true) of
        Jobs -> say(Step, ["kept", Jobs])
    catch
        error:_ ->
            catch thrift_client:close(get(client)),
            (get(open))(),
            say(Step, ["broken", count(true)])
    end.

flow() ->
    Steps = get(queue) ++ "_steps",
    First = #'FlowStage'{name = "add", queueName = Steps},
    Second = #'FlowStage'{name = "total", queueName = Steps, parentStage = "add"},
    Month = dict:from_list([{"month", "11"}]),
    Asked = #'CreateFlowRequest'{name = "sums", stages = [First, Second], metadata = Month},
    #'CreateFlowResponse'{id = Id, isNew = IsNew} = call(createFlow, [Asked]),
    #'FlowStatus'{stages = Stages, metadata = Metadata} = call(getFlow, [#'GetFlowRequest'{flowId = Id}]),
    Shown = [
        [Name, "<", text(Parent)]
     || #'StageStatus'{stage = #'FlowStage'{name = Name, parentStage = Parent}} <- Stages
    ],
    say("flow", [IsNew, dict:fetch(<<"month">>, Metadata) | Shown]).

run(Queue, Password) ->
    call(createQueue, [Queue]),
    say("create", []),
    Plain = stored(#'PinLaterJob'{body = <<"plain">>}),
    say("plain", []),
    Named = #'PinLaterJob'{body = <<"keyed">>, dedupeKey = "key", priority = 2},
    Keyed = stored(Named),
    #'PinLaterEnqueueResponse'{jobDescriptors = [Again], outcomes = [Outcome]} = enqueue(Queue, Named),
    say("keyed", [Outcome, Again =:= Keyed]),
    Grouped = stored(#'PinLaterJob'{
        body = list_to_binary(lists:seq(0, 255)),
        priority = 3,
        numAttemptsAllowed = 7,
        customStatus = <<"grüße 日本 🚀"/utf8>>,
        group = <<"tenant-é"/utf8>>,
        tags = [<<"red">>, <<"grün"/utf8>>]
    }),
    #'PinLaterJobInfo'{group = Group, tags = Tags, customStatus = Status, attemptsAllowed = Allowed} = lookup(Grouped),
    say("group", [Group, lists:join(",", Tags), Status, Allowed]),
    Delayed = stored(#'PinLaterJob'{body = <<"later">>, runAfterTimestampMillis = 4000000000123}),
    #'PinLaterJobInfo'{runAfterTimestampMillis = At} = lookup(Delayed),
    say("delayed", [At]),
    say("count", [count(false), count(true)]),
    say("names", [is_in_queues()]),
    Taken = dequeue(10),
    lists:foreach(
        fun(Each) ->
            #'PinLaterDequeueResponse'{jobs = Jobs, jobMetadata = Metadata} = Taken,
            #'PinLaterDequeueMetadata'{priority = Priority, attemptsAllowed = Attempts} = dict:fetch(Each, Metadata),
            say("dequeued", [Priority, Attempts, hex(dict:fetch(Each, Jobs))])
        end,
        [Plain, Keyed, Grouped]
    ),
    Good = ack_of(Plain, Taken),
    Point = #'PinLaterCheckpointJobRequest'{
        jobDescriptor = Plain,
        claimDescriptor = Good#'PinLaterJobAckInfo'.claimDescriptor,
        newBodyBytes = <<0, 255>>,
        prependCustomStatus = "half"
    },
    call(checkpointJobs, [#'PinLaterCheckpointJobsRequest'{queueName = Queue, requests = [Point]}]),
    #'PinLaterJobInfo'{jobState = Running, body = Half, customStatus = Note} = lookup(Plain),
    say("checkpoint", [Running, hex(Half), Note]),
    Done = Good#'PinLaterJobAckInfo'{result = <<0, 255, 128>>, progress = #'JobProgress'{fraction = 0.5}},
    Bad = (ack_of(Keyed, Taken))#'PinLaterJobAckInfo'{permanent = true},
    Slow = (ack_of(Grouped, Taken))#'PinLaterJobAckInfo'{retryDelayMillis = 3600000},
    ack("ack", [Done], [Bad, Slow]),
    ack("stale", [Done], []),
    #'PinLaterJobInfo'{jobState = Ended, result = Result, progress = Progress} = lookup(Plain),
    say("result", [Ended, hex(Result), Progress#'JobProgress'.fraction]),
    Succeeded = #'PinLaterScanJobsRequest'{queueName = Queue, jobState = ?PINLATER_PINLATERJOBSTATE_SUCCEEDED},
    #'PinLaterScanJobsResponse'{scannedJobs = Found, continuation = Continuation} = call(scanJobs, [Succeeded]),
    [#'PinLaterJobInfo'{jobDescriptor = First} | _] = Found,
    say("scan", [length(Found), First =:= Plain, Continuation]),
    try
        enqueue("nowhere", #'PinLaterJob'{body = <<"lost">>})
    catch
        throw:#'PinLaterException'{errorCode = Code, reason = Reason, retryable = Retryable} ->
            say("error", [Code, Reason, Retryable])
    end,
    flow(),
    Cancel = #'CancelJobsRequest'{queueName = Queue, jobDescriptors = [Delayed]},
    #'CancelJobsResponse'{outcomes = Cancelled} = call(cancelJobs, [Cancel]),
    say("cancel", [dict:fetch(Delayed, Cancelled)]),
    Large = list_to_binary([Index rem 251 || Index <- lists:seq(0, 99999)]),
    Largest = stored(#'PinLaterJob'{body = Large}),
    Came = dequeue(1),
    Body = dict:fetch(Largest, Came#'PinLaterDequeueResponse'.jobs),
    say("large", [byte_size(Body), Body =:= Large]),
    ack("ended", [ack_of(Largest, Came)], []),
    #'AccessView'{identity = Identity} = call(getAccess, []),
    say("identity", [Identity]),
    pause("idle"),
    pause("restart"),
    call(deleteQueue, [Queue, Password]),
    say("delete", [is_in_queues()]).
