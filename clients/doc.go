// Package clients has the clients for Python, TypeScript and Java in its folders python, typescript and java.
// Its tests build, lint and test each, and let it deliver the first message of its README. Every client, that for
// Go too, plays the scenario (scenario/README.md) against a real node.
//
// Its other tests hold that the usual generators make good clients of the OpenAPI document (api/openapi.json):
// those that openapi-python-client and openapi-typescript make are compiled, and call every operation of a node.
// Schemathesis, which makes requests of the document, does so for a minute.
package clients
