// Package client is the Go client of Postdate's HTTP API. It has a method for every
// call of the API, and depends on little: a user's program gets nothing of the node with it.
//
//	c, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:8080"}})
//	…
//	m, err := c.Schedule(ctx, client.Message{
//		Channel: "rabbitmq:orders", Delay: 15 * time.Minute, Payload: []byte(`{"order": 42}`),
//	})
//	…
//	err = c.Cancel(ctx, m.ScheduleID) // nil is the guarantee that it is never delivered
//
// # Errors
//
// A [Problem] is an answer of the server that is no success, with all that it says.
// A [NoAnswer] says that no answer came. [TypeOf] tells problems apart, and
// [MayBeDone] tells for any error whether the call may have had its effect all the same.
//
// # Retries
//
// A call is tried again, at the next server and then after a pause, until it is answered,
// its context ends, or [Config].RetryFor is over. Of several servers the client stays with
// the one that answers. A Retry-After is waited for. What the failed try means decides:
//
//	no connection; 408, 429, 503, 507    nothing was done: every call is tried again
//	no answer, 502, 504                  nobody knows: only what is safe twice is tried again
//	any other status                     the answer: nothing is tried again
//
// A 5xx without a problem's type comes from a proxy, and then nobody knows either.
//
// Reads, schedules and cancels are safe twice. A message without a ScheduleID gets one
// before the first try, and a server that sees the same id with the same content again
// schedules nothing. Put, Patch and ChangeChannel are not safe twice: somebody else may
// change the same thing between the two tries.
//
// # Gathering
//
// Concurrent calls of Schedule travel together, and so do those of Cancel. A call waits
// for nothing: while fewer than [Config].Requests requests are under way, it leaves at
// once. What comes while they are all under way leaves together with the next one. Each
// call keeps its own context: one that ends before the call has left withdraws it, and
// then surely nothing is done; later, the error says that it may be done.
package client
