/* The scenario of tests/languages/scenario.py, through Apache's library for C with GLib.
 * caller HOST PORT framed|buffered binary|compact CA|- - - TOKEN|- QUEUE PASSWORD */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thrift/c_glib/protocol/thrift_binary_protocol.h>
#include <thrift/c_glib/protocol/thrift_compact_protocol.h>
#include <thrift/c_glib/transport/thrift_buffered_transport.h>
#include <thrift/c_glib/transport/thrift_framed_transport.h>
#include <thrift/c_glib/transport/thrift_socket.h>
#include <thrift/c_glib/transport/thrift_ssl_socket.h>

#include "pin_later.h"

#define SET(object, field, given) ((object)->field = (given), (object)->__isset_##field = TRUE)

static char **given;
static const char *queue;
static RequestContext *caller;
static ThriftTransport *transport;
static PinLaterIf *client;
static GError *broken;             /* by the library */
static PinLaterException *refusal; /* by the server */

/* Ends the program where a call did not come to an answer. */
static void done(gboolean is_right) {
    if (refusal) {
        printf("REFUSED %s\n", refusal->reason);
        exit(0);
    }
    if (!is_right || broken) {
        fprintf(stderr, "%s\n", broken ? broken->message : "no answer");
        exit(1);
    }
}

static void open_client(void) {
    ThriftSocket *socket;
    if (strcmp(given[5], "-") == 0) {
        socket = g_object_new(THRIFT_TYPE_SOCKET, "hostname", given[1], "port", atoi(given[2]), NULL);
    } else {
        socket = THRIFT_SOCKET(thrift_ssl_socket_new_with_host(SSLTLS, given[1], atoi(given[2]), &broken));
        done(socket && thrift_ssl_load_cert_from_file(THRIFT_SSL_SOCKET(socket), given[5]));
    }
    GType framing = strcmp(given[3], "framed") == 0 ? THRIFT_TYPE_FRAMED_TRANSPORT : THRIFT_TYPE_BUFFERED_TRANSPORT;
    transport = g_object_new(framing, "transport", socket, NULL);
    GType layer = strcmp(given[4], "compact") == 0 ? THRIFT_TYPE_COMPACT_PROTOCOL : THRIFT_TYPE_BINARY_PROTOCOL;
    ThriftProtocol *protocol = g_object_new(layer, "transport", transport, NULL);
    client = g_object_new(TYPE_PIN_LATER_CLIENT, "input_protocol", protocol, "output_protocol", protocol, NULL);
    done(thrift_transport_open(transport, &broken));
}

static GByteArray *bytes_of(const void *data, guint length) {
    return g_byte_array_append(g_byte_array_new(), data, length);
}

static void print_hex(const GByteArray *bytes) {
    for (guint index = 0; index < bytes->len; index++) {
        printf("%02x", bytes->data[index]);
    }
}

static PinLaterJob *job_of(const void *data, guint length) {
    PinLaterJob *job = g_object_new(TYPE_PIN_LATER_JOB, NULL);
    job->body = bytes_of(data, length);
    return job;
}

static gboolean send_job(const char *into, PinLaterJob *job, PinLaterEnqueueResponse **answer) {
    PinLaterEnqueueRequest *request = g_object_new(TYPE_PIN_LATER_ENQUEUE_REQUEST, NULL);
    request->queueName = g_strdup(into);
    g_ptr_array_add(request->jobs, job);
    *answer = g_object_new(TYPE_PIN_LATER_ENQUEUE_RESPONSE, NULL);
    return pin_later_client_enqueue_jobs(client, answer, caller, request, &refusal, &broken);
}

static PinLaterEnqueueResponse *enqueue(PinLaterJob *job) {
    PinLaterEnqueueResponse *answer;
    done(send_job(queue, job, &answer));
    return answer;
}

static char *descriptor_of(const PinLaterEnqueueResponse *answer) {
    return g_ptr_array_index(answer->jobDescriptors, 0);
}

static PinLaterJobInfo *lookup(const char *descriptor) {
    PinLaterLookupJobRequest *request = g_object_new(TYPE_PIN_LATER_LOOKUP_JOB_REQUEST, NULL);
    g_ptr_array_add(request->jobDescriptors, g_strdup(descriptor));
    SET(request, includeBody, TRUE);
    SET(request, includeResult, TRUE);
    GHashTable *found = g_hash_table_new(g_str_hash, g_str_equal);
    done(pin_later_client_lookup_jobs(client, &found, caller, request, &refusal, &broken));
    return g_hash_table_lookup(found, descriptor);
}

static gboolean ask_count(gboolean future, gint32 *jobs) {
    PinLaterGetJobCountRequest *request = g_object_new(TYPE_PIN_LATER_GET_JOB_COUNT_REQUEST, NULL);
    request->queueName = g_strdup(queue);
    request->jobState = PIN_LATER_JOB_STATE_PENDING;
    SET(request, countFutureJobs, future);
    return pin_later_client_get_job_count(client, jobs, caller, request, &refusal, &broken);
}

static gint32 count(gboolean future) {
    gint32 jobs = -1;
    done(ask_count(future, &jobs));
    return jobs;
}

static PinLaterDequeueResponse *dequeue(gint32 limit) {
    PinLaterDequeueRequest *request = g_object_new(TYPE_PIN_LATER_DEQUEUE_REQUEST, NULL);
    request->queueName = g_strdup(queue);
    request->limit = limit;
    SET(request, waitMillis, 1000);
    SET(request, claimTimeoutMillis, 600000);
    PinLaterDequeueResponse *answer = g_object_new(TYPE_PIN_LATER_DEQUEUE_RESPONSE, NULL);
    done(pin_later_client_dequeue_jobs(client, &answer, caller, request, &refusal, &broken));
    return answer;
}

static gboolean is_in_queues(void) {
    GHashTable *names = g_hash_table_new(g_str_hash, g_str_equal);
    done(pin_later_client_get_queue_names(client, &names, caller, &refusal, &broken));
    return g_hash_table_contains(names, queue);
}

static PinLaterJobAckInfo *ack_of(const char *descriptor, const PinLaterDequeueResponse *taken) {
    PinLaterDequeueMetadata *metadata = g_hash_table_lookup(taken->jobMetadata, descriptor);
    PinLaterJobAckInfo *info = g_object_new(TYPE_PIN_LATER_JOB_ACK_INFO, NULL);
    info->jobDescriptor = g_strdup(descriptor);
    SET(info, claimDescriptor, g_strdup(metadata->claimDescriptor));
    return info;
}

static void ack(const char *step, PinLaterJobAckInfo *succeeded, PinLaterJobAckInfo *bad, PinLaterJobAckInfo *slow) {
    PinLaterJobAckRequest *request = g_object_new(TYPE_PIN_LATER_JOB_ACK_REQUEST, NULL);
    request->queueName = g_strdup(queue);
    g_ptr_array_add(request->jobsSucceeded, g_object_ref(succeeded));
    request->__isset_jobsSucceeded = TRUE;
    if (bad) {
        g_ptr_array_add(request->jobsFailed, bad);
        g_ptr_array_add(request->jobsFailed, slow);
        request->__isset_jobsFailed = TRUE;
    }
    AckJobsResponse *answer = g_object_new(TYPE_ACK_JOBS_RESPONSE, NULL);
    done(pin_later_client_ack_jobs(client, &answer, caller, request, &refusal, &broken));
    printf("%s", step);
    for (guint index = 0; index < answer->outcomes->len; index++) {
        printf(" %d", g_array_index(answer->outcomes, AckOutcome, index));
    }
    printf("\n");
}

static void pause_at(const char *step) {
    char line[16];
    gint32 jobs = -1;
    printf("%s?\n", step);
    if (!fgets(line, sizeof line, stdin)) {
        exit(1);
    }
    if (ask_count(TRUE, &jobs) && !broken) {
        printf("%s kept %d\n", step, jobs);
        return;
    }
    g_clear_error(&broken);
    thrift_transport_close(transport, &broken);
    g_clear_error(&broken);
    open_client();
    printf("%s broken %d\n", step, count(TRUE));
}

static FlowStage *stage_of(const char *name) {
    FlowStage *stage = g_object_new(TYPE_FLOW_STAGE, NULL);
    stage->name = g_strdup(name);
    stage->queueName = g_strdup_printf("%s_steps", queue);
    return stage;
}

static void flow(void) {
    CreateFlowRequest *request = g_object_new(TYPE_CREATE_FLOW_REQUEST, NULL);
    FlowStage *second = stage_of("total");
    SET(second, parentStage, g_strdup("add"));
    request->name = g_strdup("sums");
    g_ptr_array_add(request->stages, stage_of("add"));
    g_ptr_array_add(request->stages, second);
    g_hash_table_insert(request->metadata, g_strdup("month"), g_strdup("11"));
    request->__isset_metadata = TRUE;
    CreateFlowResponse *made = g_object_new(TYPE_CREATE_FLOW_RESPONSE, NULL);
    done(pin_later_client_create_flow(client, &made, caller, request, &refusal, &broken));
    GetFlowRequest *asked = g_object_new(TYPE_GET_FLOW_REQUEST, NULL);
    asked->flowId = g_strdup(made->id);
    FlowStatus *status = g_object_new(TYPE_FLOW_STATUS, NULL);
    done(pin_later_client_get_flow(client, &status, caller, asked, &refusal, &broken));
    printf("flow %d %s", made->isNew, (char *)g_hash_table_lookup(status->metadata, "month"));
    for (guint index = 0; index < status->stages->len; index++) {
        FlowStage *stage = ((StageStatus *)g_ptr_array_index(status->stages, index))->stage;
        printf(" %s<%s", stage->name, stage->parentStage ? stage->parentStage : "");
    }
    printf("\n");
}

static void run(void) {
    done(pin_later_client_create_queue(client, caller, queue, &refusal, &broken));
    printf("create\n");
    const char *plain = descriptor_of(enqueue(job_of("plain", 5)));
    printf("plain\n");
    PinLaterJob *named = job_of("keyed", 5);
    SET(named, dedupeKey, g_strdup("key"));
    SET(named, priority, 2);
    const char *keyed = descriptor_of(enqueue(g_object_ref(named)));
    PinLaterEnqueueResponse *again = enqueue(named);
    printf("keyed %d %d\n", g_array_index(again->outcomes, EnqueueOutcome, 0), !strcmp(descriptor_of(again), keyed));
    unsigned char all[256];
    for (int byte = 0; byte < 256; byte++) {
        all[byte] = (unsigned char)byte;
    }
    PinLaterJob *of_group = job_of(all, sizeof all);
    SET(of_group, priority, 3);
    SET(of_group, numAttemptsAllowed, 7);
    SET(of_group, customStatus, g_strdup("grüße 日本 🚀"));
    SET(of_group, group, g_strdup("tenant-é"));
    g_ptr_array_add(of_group->tags, g_strdup("red"));
    g_ptr_array_add(of_group->tags, g_strdup("grün"));
    of_group->__isset_tags = TRUE;
    const char *grouped = descriptor_of(enqueue(of_group));
    PinLaterJobInfo *info = lookup(grouped);
    printf("group %s %s,%s %s %d\n", info->group, (char *)g_ptr_array_index(info->tags, 0),
           (char *)g_ptr_array_index(info->tags, 1), info->customStatus, info->attemptsAllowed);
    PinLaterJob *later = job_of("later", 5);
    SET(later, runAfterTimestampMillis, G_GINT64_CONSTANT(4000000000123));
    const char *delayed = descriptor_of(enqueue(later));
    printf("delayed %" G_GINT64_FORMAT "\n", lookup(delayed)->runAfterTimestampMillis);
    printf("count %d", count(FALSE));
    printf(" %d\n", count(TRUE));
    printf("names %d\n", is_in_queues());
    PinLaterDequeueResponse *taken = dequeue(10);
    const char *three[] = {plain, keyed, grouped};
    for (int index = 0; index < 3; index++) {
        PinLaterDequeueMetadata *metadata = g_hash_table_lookup(taken->jobMetadata, three[index]);
        printf("dequeued %d %d ", metadata->priority, metadata->attemptsAllowed);
        print_hex(g_hash_table_lookup(taken->jobs, three[index]));
        printf("\n");
    }
    PinLaterCheckpointJobRequest *point = g_object_new(TYPE_PIN_LATER_CHECKPOINT_JOB_REQUEST, NULL);
    PinLaterJobAckInfo *good = ack_of(plain, taken), *bad = ack_of(keyed, taken), *slow = ack_of(grouped, taken);
    point->jobDescriptor = g_strdup(plain);
    SET(point, claimDescriptor, g_strdup(good->claimDescriptor));
    SET(point, newBodyBytes, bytes_of("\x00\xff", 2));
    SET(point, prependCustomStatus, g_strdup("half"));
    PinLaterCheckpointJobsRequest *points = g_object_new(TYPE_PIN_LATER_CHECKPOINT_JOBS_REQUEST, NULL);
    points->queueName = g_strdup(queue);
    g_ptr_array_add(points->requests, point);
    done(pin_later_client_checkpoint_jobs(client, caller, points, &refusal, &broken));
    info = lookup(plain);
    printf("checkpoint %d ", info->jobState);
    print_hex(info->body);
    printf(" %s\n", info->customStatus);
    SET(good, result, bytes_of("\x00\xff\x80", 3));
    SET(good->progress, fraction, 0.5);
    good->__isset_progress = TRUE;
    SET(bad, permanent, TRUE);
    SET(slow, retryDelayMillis, 3600000);
    ack("ack", good, bad, slow);
    ack("stale", good, NULL, NULL);
    info = lookup(plain);
    printf("result %d ", info->jobState);
    print_hex(info->result);
    printf(" %g\n", info->progress->fraction);
    PinLaterScanJobsRequest *scan = g_object_new(TYPE_PIN_LATER_SCAN_JOBS_REQUEST, NULL);
    scan->queueName = g_strdup(queue);
    scan->jobState = PIN_LATER_JOB_STATE_SUCCEEDED;
    PinLaterScanJobsResponse *page = g_object_new(TYPE_PIN_LATER_SCAN_JOBS_RESPONSE, NULL);
    done(pin_later_client_scan_jobs(client, &page, caller, scan, &refusal, &broken));
    PinLaterJobInfo *first = g_ptr_array_index(page->scannedJobs, 0);
    printf("scan %u %d %s\n", page->scannedJobs->len, !strcmp(first->jobDescriptor, plain), page->continuation);
    PinLaterEnqueueResponse *none;
    send_job("nowhere", job_of("lost", 4), &none);
    if (refusal) {
        printf("error %d %s %d\n", refusal->errorCode, refusal->reason, refusal->retryable);
        g_clear_object(&refusal);
        g_clear_error(&broken);
    }
    flow();
    CancelJobsRequest *cancel = g_object_new(TYPE_CANCEL_JOBS_REQUEST, NULL);
    cancel->queueName = g_strdup(queue);
    g_ptr_array_add(cancel->jobDescriptors, g_strdup(delayed));
    CancelJobsResponse *cancelled = g_object_new(TYPE_CANCEL_JOBS_RESPONSE, NULL);
    done(pin_later_client_cancel_jobs(client, &cancelled, caller, cancel, &refusal, &broken));
    printf("cancel %d\n", GPOINTER_TO_INT(g_hash_table_lookup(cancelled->outcomes, delayed)));
    static unsigned char large[100000];
    for (int index = 0; index < 100000; index++) {
        large[index] = (unsigned char)(index % 251);
    }
    const char *largest = descriptor_of(enqueue(job_of(large, sizeof large)));
    PinLaterDequeueResponse *came = dequeue(1);
    GByteArray *body = g_hash_table_lookup(came->jobs, largest);
    printf("large %u %d\n", body->len, body->len == sizeof large && !memcmp(body->data, large, sizeof large));
    ack("ended", ack_of(largest, came), NULL, NULL);
    AccessView *access = g_object_new(TYPE_ACCESS_VIEW, NULL);
    done(pin_later_client_get_access(client, &access, caller, &refusal, &broken));
    printf("identity %s\n", access->identity);
    pause_at("idle");
    pause_at("restart");
    done(pin_later_client_delete_queue(client, caller, queue, given[10], &refusal, &broken));
    printf("delete %d\n", is_in_queues());
}

int main(int argc, char **arguments) {
    (void)argc;
    given = arguments;
    queue = given[9];
    signal(SIGPIPE, SIG_IGN); /* the library writes to broken connections with the signal on */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(given[5], "-") != 0) {
        thrift_ssl_socket_initialize_openssl();
    }
    caller = g_object_new(TYPE_REQUEST_CONTEXT, NULL);
    caller->source = g_strdup("caller");
    if (strcmp(given[8], "-") != 0) {
        SET(caller, token, g_strdup(given[8]));
    }
    open_client();
    run();
    thrift_transport_close(transport, &broken);
    return 0;
}
