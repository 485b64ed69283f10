// Package clients is for the clients in other languages, which are made from the OpenAPI document
// (api/openapi.json): its tests hold that the usual generators make good ones of it.
//
// They generate the Python client (openapi-python-client) and the TypeScript client
// (openapi-typescript, openapi-fetch), check the types, and drive a node with each through every
// operation. Schemathesis, which makes requests of the document, does so for a minute.
//
// Every client plays the scenario (scenario/README.md) against a real node. Those for Python, TypeScript and
// Java are in python, typescript and java.
package clients
