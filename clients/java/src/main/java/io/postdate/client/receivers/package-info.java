/**
 * For programs that receive messages from webhooks, RabbitMQ and Kafka: {@link
 * io.postdate.client.receivers.Webhooks} verifies signatures, {@link
 * io.postdate.client.receivers.Delivery} reads headers, and {@link
 * io.postdate.client.receivers.Dedupe} drops repetitions.
 */
package io.postdate.client.receivers;
