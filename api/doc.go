// Package api is Postdate's HTTP API, version 1: it takes schedules, answers for
// them, and shows what became of them. The OpenAPI document that it serves at
// /openapi.json describes every call; a test holds the two together.
//
// It stands on fasthttp, because scheduling is a request per message and
// fasthttp serves about twice as many of these per second as net/http on the
// same cores.
//
// # A request's way
//
// A handler is three steps. The body or the query is parsed and checked by pure
// functions (body.go, check.go, query.go), the store is called once, and the
// answer is appended to the response's buffer (answer.go). Whatever goes wrong
// on the way is a [Problem] and leaves as application/problem+json (RFC 9457),
// with a detail that says what to do.
//
// # What an answer promises
//
// A 2xx stands on a durable write. A 4xx, a 503 and a 507 mean that surely
// nothing was done. A 504 means that it may have been done or not: the same
// request with the same schedule id may be repeated without harm, and its
// answer tells.
//
// The package knows only the small interfaces in [Config]; the node wires them.
package api
