// The scenario of tests/languages/scenario.py, through Apache's library for C++.
// caller HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSSLSocket.h>

#include "PinLater.h"

using namespace apache::thrift;
using namespace pinterest::pinlater;

static char **given;
static std::string queue;
static RequestContext caller;
static std::shared_ptr<transport::TTransport> opened;
static std::unique_ptr<PinLaterClient> client;

static void open() {
    std::shared_ptr<transport::TSocket> socket;
    const int port = std::stoi(given[2]);
    static std::shared_ptr<transport::TSSLSocketFactory> factory; // the sockets need it for as long as they live
    if (std::string(given[5]) == "-") {
        socket = std::make_shared<transport::TSocket>(given[1], port);
    } else {
        factory = std::make_shared<transport::TSSLSocketFactory>(transport::SSLTLS);
        factory->authenticate(true);
        factory->ciphers("HIGH");
        factory->loadTrustedCertificates(given[5]);
        if (std::string(given[6]) != "-") {
            factory->loadCertificate(given[6]);
            factory->loadPrivateKey(given[7]);
        }
        socket = factory->createSocket(given[1], port);
    }
    socket->setRecvTimeout(30000);
    if (std::string(given[3]) == "framed") {
        opened = std::make_shared<transport::TFramedTransport>(socket);
    } else {
        opened = std::make_shared<transport::TBufferedTransport>(socket);
    }
    std::shared_ptr<protocol::TProtocol> layer;
    if (std::string(given[4]) == "compact") {
        layer = std::make_shared<protocol::TCompactProtocol>(opened);
    } else {
        layer = std::make_shared<protocol::TBinaryProtocol>(opened);
    }
    client.reset(new PinLaterClient(layer));
    opened->open();
}

static std::string hex(const std::string &bytes) {
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned char byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

static PinLaterJob job_of(const std::string &body) {
    PinLaterJob job;
    job.__set_body(body);
    return job;
}

static PinLaterEnqueueResponse enqueue(const std::string &into, const PinLaterJob &job) {
    PinLaterEnqueueRequest request;
    request.__set_queueName(into);
    request.__set_jobs({job});
    PinLaterEnqueueResponse answer;
    client->enqueueJobs(answer, caller, request);
    return answer;
}

static PinLaterJobInfo lookup(const std::string &descriptor) {
    PinLaterLookupJobRequest request;
    request.__set_jobDescriptors({descriptor});
    request.__set_includeBody(true);
    request.__set_includeResult(true);
    std::map<std::string, PinLaterJobInfo> found;
    client->lookupJobs(found, caller, request);
    return found.at(descriptor);
}

static int count(bool future) {
    PinLaterGetJobCountRequest request;
    request.__set_queueName(queue);
    request.__set_jobState(PinLaterJobState::PENDING);
    request.__set_countFutureJobs(future);
    return client->getJobCount(caller, request);
}

static PinLaterDequeueResponse dequeue(int limit) {
    PinLaterDequeueRequest request;
    request.__set_queueName(queue);
    request.__set_limit(limit);
    request.__set_waitMillis(1000);
    request.__set_claimTimeoutMillis(600000);
    PinLaterDequeueResponse answer;
    client->dequeueJobs(answer, caller, request);
    return answer;
}

static bool is_in_queues() {
    std::set<std::string> names;
    client->getQueueNames(names, caller);
    return names.count(queue) != 0;
}

static void ack(const char *step, const std::vector<PinLaterJobAckInfo> &succeeded,
                const std::vector<PinLaterJobAckInfo> &failed) {
    PinLaterJobAckRequest request;
    request.__set_queueName(queue);
    request.__set_jobsSucceeded(succeeded);
    request.__set_jobsFailed(failed);
    AckJobsResponse answer;
    client->ackJobs(answer, caller, request);
    std::cout << step;
    for (auto outcome : answer.outcomes) {
        std::cout << ' ' << static_cast<int>(outcome);
    }
    std::cout << std::endl;
}

static void pause(const std::string &step) {
    std::cout << step << '?' << std::endl;
    std::string line;
    std::getline(std::cin, line);
    try {
        const int jobs = count(true);
        std::cout << step << " kept " << jobs << std::endl;
    } catch (const transport::TTransportException &) {
        try { opened->close(); } catch (const TException &) {}
        open();
        std::cout << step << " broken " << count(true) << std::endl;
    }
}

static PinLaterJobAckInfo ack_of(const std::string &descriptor, const PinLaterDequeueResponse &taken) {
    PinLaterJobAckInfo info;
    info.__set_jobDescriptor(descriptor);
    info.__set_claimDescriptor(taken.jobMetadata.at(descriptor).claimDescriptor);
    return info;
}

static void flow() {
    FlowStage first, second;
    first.__set_name("add");
    first.__set_queueName(queue + "_steps");
    second.__set_name("total");
    second.__set_queueName(queue + "_steps");
    second.__set_parentStage("add");
    CreateFlowRequest request;
    request.__set_name("sums");
    request.__set_stages({first, second});
    request.__set_metadata({{"month", "11"}});
    CreateFlowResponse made;
    client->createFlow(made, caller, request);
    GetFlowRequest asked;
    asked.__set_flowId(made.id);
    FlowStatus status;
    client->getFlow(status, caller, asked);
    std::cout << "flow " << made.isNew << ' ' << status.metadata.at("month");
    for (const auto &each : status.stages) {
        std::cout << ' ' << each.stage.name << '<' << each.stage.parentStage;
    }
    std::cout << std::endl;
}

static void run() {
    client->createQueue(caller, queue);
    std::cout << "create" << std::endl;
    const std::string plain = enqueue(queue, job_of("plain")).jobDescriptors.at(0);
    std::cout << "plain" << std::endl;
    PinLaterJob named = job_of("keyed");
    named.__set_dedupeKey("key");
    named.__set_priority(2);
    const std::string keyed = enqueue(queue, named).jobDescriptors.at(0);
    const PinLaterEnqueueResponse again = enqueue(queue, named);
    std::cout << "keyed " << static_cast<int>(again.outcomes.at(0)) << ' ' << (again.jobDescriptors.at(0) == keyed)
              << std::endl;
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        all += static_cast<char>(byte);
    }
    PinLaterJob of_group = job_of(all);
    of_group.__set_priority(3);
    of_group.__set_numAttemptsAllowed(7);
    of_group.__set_customStatus("grüße 日本 🚀");
    of_group.__set_group("tenant-é");
    of_group.__set_tags({"red", "grün"});
    const std::string grouped = enqueue(queue, of_group).jobDescriptors.at(0);
    PinLaterJobInfo info = lookup(grouped);
    std::cout << "group " << info.group << ' ' << info.tags.at(0) << ',' << info.tags.at(1) << ' ' << info.customStatus
              << ' ' << info.attemptsAllowed << std::endl;
    PinLaterJob later = job_of("later");
    later.__set_runAfterTimestampMillis(4000000000123LL);
    const std::string delayed = enqueue(queue, later).jobDescriptors.at(0);
    std::cout << "delayed " << lookup(delayed).runAfterTimestampMillis << std::endl;
    std::cout << "count " << count(false) << ' ' << count(true) << std::endl;
    std::cout << "names " << is_in_queues() << std::endl;
    const PinLaterDequeueResponse taken = dequeue(10);
    for (const std::string &each : {plain, keyed, grouped}) {
        const PinLaterDequeueMetadata &metadata = taken.jobMetadata.at(each);
        std::cout << "dequeued " << static_cast<int>(metadata.priority) << ' ' << metadata.attemptsAllowed << ' '
                  << hex(taken.jobs.at(each)) << std::endl;
    }
    PinLaterCheckpointJobRequest point;
    point.__set_jobDescriptor(plain);
    point.__set_claimDescriptor(taken.jobMetadata.at(plain).claimDescriptor);
    point.__set_newBodyBytes(std::string("\0\xff", 2));
    point.__set_prependCustomStatus("half");
    PinLaterCheckpointJobsRequest points;
    points.__set_queueName(queue);
    points.__set_requests({point});
    client->checkpointJobs(caller, points);
    info = lookup(plain);
    std::cout << "checkpoint " << static_cast<int>(info.jobState) << ' ' << hex(info.body) << ' ' << info.customStatus << std::endl;
    PinLaterJobAckInfo good = ack_of(plain, taken), bad = ack_of(keyed, taken), slow = ack_of(grouped, taken);
    JobProgress progress;
    progress.__set_fraction(0.5);
    good.__set_result(std::string("\0\xff\x80", 3));
    good.__set_progress(progress);
    bad.__set_permanent(true);
    slow.__set_retryDelayMillis(3600000);
    ack("ack", {good}, {bad, slow});
    ack("stale", {good}, {});
    info = lookup(plain);
    std::cout << "result " << static_cast<int>(info.jobState) << ' ' << hex(info.result) << ' ' << info.progress.fraction << std::endl;
    PinLaterScanJobsRequest scan;
    scan.__set_queueName(queue);
    scan.__set_jobState(PinLaterJobState::SUCCEEDED);
    PinLaterScanJobsResponse page;
    client->scanJobs(page, caller, scan);
    std::cout << "scan " << page.scannedJobs.size() << ' ' << (page.scannedJobs.at(0).jobDescriptor == plain) << ' '
              << page.continuation << std::endl;
    try {
        enqueue("nowhere", job_of("lost"));
    } catch (const PinLaterException &error) {
        std::cout << "error " << static_cast<int>(error.errorCode) << ' ' << error.reason << ' ' << error.retryable << std::endl;
    }
    flow();
    CancelJobsRequest cancel;
    cancel.__set_queueName(queue);
    cancel.__set_jobDescriptors({delayed});
    CancelJobsResponse cancelled;
    client->cancelJobs(cancelled, caller, cancel);
    std::cout << "cancel " << static_cast<int>(cancelled.outcomes.at(delayed)) << std::endl;
    std::string large;
    for (int index = 0; index < 100000; ++index) {
        large += static_cast<char>(index % 251);
    }
    const std::string largest = enqueue(queue, job_of(large)).jobDescriptors.at(0);
    const PinLaterDequeueResponse came = dequeue(1);
    std::cout << "large " << came.jobs.at(largest).size() << ' ' << (came.jobs.at(largest) == large) << std::endl;
    ack("ended", {ack_of(largest, came)}, {});
    AccessView access;
    client->getAccess(access, caller);
    std::cout << "identity " << access.identity << std::endl;
    pause("idle");
    pause("restart");
    client->deleteQueue(caller, queue, given[10]);
    std::cout << "delete " << is_in_queues() << std::endl;
}

int main(int, char **arguments) {
    given = arguments;
    queue = given[9];
    caller.__set_source("caller");
    if (std::string(given[8]) != "-") {
        caller.__set_token(given[8]);
    }
    try {
        open();
        run();
        opened->close();
    } catch (const PinLaterException &error) {
        std::cout << "REFUSED " << error.reason << std::endl;
    } catch (const TException &error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    return 0;
}
