// One job, through Apache's library for C++ over TLS.
// caller HOST PORT CA CERT|- KEY|- QUEUE; prints the job's descriptor, or REFUSED and the reason.
#include <iostream>
#include <memory>
#include <string>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSSLSocket.h>

#include "PinLater.h"

using namespace apache::thrift;
using namespace pinterest::pinlater;

int main(int, char **given) {
    const std::string cert = given[4], queue = given[6];
    auto factory = std::make_shared<transport::TSSLSocketFactory>(transport::SSLTLS);
    factory->authenticate(true);
    factory->ciphers("HIGH");
    factory->loadTrustedCertificates(given[3]);
    if (cert != "-") {
        factory->loadCertificate(given[4]);
        factory->loadPrivateKey(given[5]);
    }
    auto socket = factory->createSocket(given[1], std::stoi(given[2]));
    auto transport = std::make_shared<transport::TFramedTransport>(socket);
    PinLaterClient client(std::make_shared<protocol::TBinaryProtocol>(transport));
    RequestContext caller;
    caller.__set_source("c++");
    PinLaterJob job;
    job.__set_body("from c++");
    PinLaterEnqueueRequest request;
    request.__set_queueName(queue);
    request.__set_jobs({job});
    try {
        transport->open();
        client.createQueue(caller, queue);
        PinLaterEnqueueResponse answer;
        client.enqueueJobs(answer, caller, request);
        std::cout << answer.jobDescriptors.at(0) << std::endl;
    } catch (const PinLaterException &error) {
        std::cout << "REFUSED " << error.reason << std::endl;
    } catch (const TException &error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
    transport->close();
    return 0;
}
