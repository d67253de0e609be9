/**
 * A producer and a worker for PinLater, over Thrift.
 *
 * <p>{@link pinlater.Cluster} says where the servers are, {@link pinlater.Producer} enqueues jobs and waits for their
 * results, {@link pinlater.Worker} runs them. Errors of calls are {@link pinlater.CallException}s.
 */
package pinlater;
