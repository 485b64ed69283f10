package io.postdate.client;

import java.net.http.HttpHeaders;

/**
 * A server's answer that is no error.
 *
 * @param status of HTTP
 * @param headers of HTTP
 * @param text the body
 * @param askedAt when the request was begun to which this is the answer, by System.nanoTime
 */
public record Answer(int status, HttpHeaders headers, String text, long askedAt) {}
