// Package api is Postdate's HTTP API, version 1: clients schedule, change and cancel
// messages and look up their state. The OpenAPI document that it serves at
// /openapi.json describes every call; a test checks it against the handlers.
//
// It uses fasthttp, because scheduling takes a request per message and fasthttp
// serves about twice as many of these per second as net/http on the same cores.
//
// # A request's way
//
// A handler has three steps. Pure functions parse and check the body or the query
// (body.go, check.go, query.go), the store is called, and the answer is appended to the
// response's buffer (answer.go). Any error on the way is a [Problem] and is sent as
// application/problem+json (RFC 9457), with a detail that says what to do.
//
// # What an answer promises
//
// A 2xx means that the write is durable. A 4xx, a 503 or a 507 means that nothing was
// done. A 504 means that the request may or may not have been done: it is safe to
// repeat it with the same schedule id, and the new answer tells.
//
// The package knows only the small interfaces in [Config]; the node wires them.
package api
