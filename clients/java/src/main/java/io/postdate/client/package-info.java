/**
 * The client of Postdate, a delayed-message queue.
 *
 * <p>{@link io.postdate.client.PostdateClient} has a blocking method for every call of the API, and
 * {@link io.postdate.client.PostdateAsyncClient} the same as futures. The classes of {@code
 * io.postdate.client.model} are made from the API's document. {@link io.postdate.client.receivers}
 * is for programs that receive messages.
 */
package io.postdate.client;
