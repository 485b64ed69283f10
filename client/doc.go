// Package client is the Go client of Postdate's HTTP API. It has a method for every call
// of the API and few dependencies: none of the node's code comes with it.
//
//	c, err := client.New(client.Config{}) // of http://127.0.0.1:8080, or what the environment says
//	…
//	m, err := c.Schedule(ctx, client.Message{
//		Channel: "rabbitmq:orders", Delay: 15 * time.Minute, Payload: []byte(`{"order": 42}`),
//	})
//	…
//	err = c.Cancel(ctx, m.ScheduleID) // nil is the guarantee that it is never delivered
//
// [Client.List] finds messages, and [Client.Consume] works through an inbox. Package receivers is for
// receivers of webhooks, RabbitMQ and Kafka.
//
// # Errors
//
// A [Problem] is a server's error response, with everything in it. A [NoAnswer] means that
// no response came. [TypeOf] tells problems apart, and [MayBeDone] says for any error
// whether the call may have taken effect all the same.
//
// # Retries
//
// A call is tried again, at the next server and, once all were tried, after a pause, until
// it is answered, its context ends, or [Config].RetryFor is over. The client stays with a
// server that answers, and respects Retry-After. The outcome of a try decides:
//
//	no connection; 408, 429, 503, 507    nothing was done: every call is tried again
//	no answer, 502, 504                  unknown: only a repeatable call is tried again
//	any other status                     the answer: no call is tried again
//
// A 5xx without a problem's type comes from a proxy, and its outcome is unknown too.
//
// Reads, schedules and cancels are repeatable. A message without a ScheduleID gets one
// before the first try, and a server that sees the same id with the same content again
// schedules nothing. Put, Patch and ChangeChannel are not repeatable: somebody else may
// change the same thing between two tries. Trigger is not, because each call begins an
// occurrence, nor is DefineTask: after a lost answer, Tasks says what there is.
//
// # Versions
//
// To change what you have read, and only that, pass its version to Put, Patch or Trigger:
//
//	r, err := c.Get(ctx, "report")
//	…
//	_, err = c.Patch(ctx, "report", change, client.IfVersion(r.Version))
//
// If somebody has changed it in between, the error is a problem of type [PreconditionFailed]:
// read it again, and decide anew.
//
// # Gathering
//
// Concurrent calls of Schedule share requests, and so do those of Cancel. No call waits for
// others to join it: while fewer than [Config].Requests requests are in progress, it is
// sent immediately. Calls that come while all are in progress share the next one. Each call
// keeps its own context. If that ends before the call is sent, nothing is done; if it ends
// later, the error says that the call may be done.
package client
