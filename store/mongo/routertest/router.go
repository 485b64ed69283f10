// Package routertest is a model of a mongos, for tests where no mongos can be had: it
// stands between a client and a real replica set, says that it is a mongos, shards
// collections in name, and holds every command against the rules by which a mongos sends
// commands to shards. rules.go has the rules, each with its source.
//
// What it proves: that the driver and the store do through a mongos what the tests see
// here, that no command breaks a rule, and which way each one goes. What it does not prove:
// that MongoDB's router does as its manual and its source say. Nothing is spread over
// shards: the replica set has it all.
package routertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"

	"github.com/postdate/postdate/store/mongo/mongotest"
)

// Router is a model of a mongos in front of one server, the primary of a replica set.
type Router struct {
	report func(format string, args ...any)
	direct *mongo.Client // to the server itself
	uri    string

	mu         sync.Mutex
	keys       map[string]bson.D // of the sharded collections, by database.collection
	watch      func(Command) error
	answered   func(Command, bson.Raw)
	denied     bool
	notEnabled bool
	version    []int // nil: that of the server
}

// Start puts a model of a mongos in front of the replica set that uri names, whose primary
// stays one, until the test ends. Commands that break a rule fail the test.
func Start(t testing.TB, uri string) *Router {
	t.Helper()
	return start(t, uri, t.Errorf)
}

func start(t testing.TB, uri string, report func(format string, args ...any)) *Router {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	r := &Router{report: report, keys: map[string]bson.D{}}
	if r.direct, err = mongo.Connect(options.Client().ApplyURI(uri)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.direct.Disconnect(context.Background()) })
	var hello struct{ Primary string }
	if err := r.direct.Database("admin").RunCommand(context.Background(),
		bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	relay := mongotest.NewRelay(t, hello.Primary, func(client, server net.Conn) {
		_ = r.serve(client, server) // the end of either connection
	})
	u.Host, u.RawQuery = relay.Address(), ""
	r.uri = u.String()
	return r
}

// URI is the address for clients, with the database of the one that Start was given.
func (r *Router) URI() string { return r.uri }

// Shard shards a collection as somebody else would have, without any check.
func (r *Router) Shard(namespace string, key bson.D) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[namespace] = key
}

// Key is the shard key of a collection; nil where it is not sharded.
func (r *Router) Key(namespace string) bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[namespace]
}

// Watch has f called with each command on a collection before it goes on; nil: nobody. An
// error is answered to the client in place of the command.
func (r *Router) Watch(f func(Command) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = f
}

// Answered has f called with each command on a collection and its answer; nil: nobody.
func (r *Router) Answered(f func(Command, bson.Raw)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = f
}

// DenyConfig refuses reads of the database config, as they are to a user who may only read
// and write the store's own.
func (r *Router) DenyConfig() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = true
}

// Version has the mongos be of another version than the server behind it.
func (r *Router) Version(numbers ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = numbers
}

// NotEnabled has shardCollection answer as before MongoDB 6.0 where enableSharding was not
// run for the database.
func (r *Router) NotEnabled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notEnabled = true
}

// serve answers one client's commands, one after the other.
func (r *Router) serve(client, server net.Conn) error {
	for {
		request, err := readMessage(client)
		if err != nil {
			return err
		}
		answer, c, err := r.answer(request)
		if err != nil {
			return err
		}
		if answer == nil {
			if _, err := server.Write(request); err != nil {
				return err
			}
			if answer, err = readMessage(server); err != nil {
				return err
			}
			if answer, err = asMongos(answer); err != nil {
				return err
			}
			r.tell(c, answer)
		}
		if _, err := client.Write(answer); err != nil {
			return err
		}
	}
}

// tell tells of an answer to a command on a collection.
func (r *Router) tell(c *Command, answer []byte) {
	r.mu.Lock()
	f := r.answered
	r.mu.Unlock()
	if f == nil || c == nil {
		return
	}
	f(*c, bson.Raw(answer[headerBytes+5:])) // behind flags and the kind of the section
}

const (
	opQuery         = wiremessage.OpCode(2004) // a driver's first hello: servers take it for nothing else
	headerBytes     = 16
	messageBytesMax = 64 << 20
)

func readMessage(from io.Reader) ([]byte, error) {
	head := make([]byte, headerBytes)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length, _, _, _, _, _ := wiremessage.ReadHeader(head)
	if length < headerBytes || length > messageBytesMax {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	message := append(head, make([]byte, length-headerBytes)...)
	_, err := io.ReadFull(from, message[headerBytes:])
	return message, err
}

// commandOf is the command of a request, with its document sequences in their places; nil
// where the request is a hello of the old form.
func commandOf(request []byte) (command bson.Raw, id int32, err error) {
	_, id, _, code, rest, _ := wiremessage.ReadHeader(request)
	if code == opQuery {
		return nil, id, nil
	}
	if code != wiremessage.OpMsg {
		return nil, id, fmt.Errorf("a request with the code %s", code)
	}
	_, rest, ok := wiremessage.ReadMsgFlags(rest)
	var body bsoncore.Document
	var arrays bson.D
	for ok && len(rest) > 0 {
		var kind wiremessage.SectionType
		if kind, rest, ok = wiremessage.ReadMsgSectionType(rest); !ok {
			break
		}
		if kind == wiremessage.SingleDocument {
			body, rest, ok = wiremessage.ReadMsgSectionSingleDocument(rest)
			continue
		}
		var name string
		var documents []bsoncore.Document
		name, documents, rest, ok = wiremessage.ReadMsgSectionDocumentSequence(rest)
		list := make(bson.A, len(documents))
		for i, d := range documents {
			list[i] = bson.Raw(d)
		}
		arrays = append(arrays, bson.E{Key: name, Value: list})
	}
	if !ok || body == nil {
		return nil, id, errors.New("a message that cannot be read")
	}
	if len(arrays) == 0 {
		return bson.Raw(body), id, nil
	}
	elements, err := bson.Raw(body).Elements()
	if err != nil {
		return nil, id, err
	}
	whole := bson.D{}
	for _, e := range elements {
		whole = append(whole, bson.E{Key: e.Key(), Value: e.Value()})
	}
	raw, err := bson.Marshal(append(whole, arrays...))
	return raw, id, err
}

// answer is what the router answers by itself; nil where the server is to answer. on is the
// command, if it is one on a collection.
func (r *Router) answer(request []byte) (answer []byte, on *Command, err error) {
	command, id, err := commandOf(request)
	if err != nil || command == nil {
		return nil, nil, err
	}
	elements, err := command.Elements()
	if err != nil || len(elements) == 0 {
		return nil, nil, fmt.Errorf("a command without elements: %w", err)
	}
	name := elements[0].Key()
	database, _ := command.Lookup("$db").StringValueOK()
	r.mu.Lock()
	version := r.version
	r.mu.Unlock()
	switch {
	case name == "buildInfo" && version != nil:
		answer, err = reply(id, bson.D{{Key: "ok", Value: 1.0}, {Key: "version", Value: fmt.Sprint(version)},
			{Key: "versionArray", Value: version}})
		return answer, nil, err
	case name == "shardCollection":
		answer, err = r.shardCollection(id, elements[0].Value().StringValue(), command)
		return answer, nil, err
	case database == "config" && name == "find":
		answer, err = r.findConfig(id, command)
		return answer, nil, err
	}
	c, ok := r.commandOn(database, name, command)
	if !ok {
		return nil, nil, nil
	}
	for _, s := range c.Statements {
		if s.Broken != "" {
			r.report("behind a mongos: %s: %s of %s: %v", s.Broken, name, c.Collection, s.Filter)
		}
	}
	r.mu.Lock()
	watch := r.watch
	r.mu.Unlock()
	if watch != nil {
		if err := watch(c); err != nil {
			answer, err = refusal(id, codeUnknownError, "%s", err)
			return answer, nil, err
		}
	}
	return nil, &c, nil
}

func reply(to int32, answer any) ([]byte, error) {
	raw, err := bson.Marshal(answer)
	if err != nil {
		return nil, err
	}
	start, b := wiremessage.AppendHeaderStart(nil, wiremessage.NextRequestID(), to, wiremessage.OpMsg)
	b = wiremessage.AppendMsgFlags(b, 0)
	b = wiremessage.AppendMsgSectionType(b, wiremessage.SingleDocument)
	b = append(b, raw...)
	return bsoncore.UpdateLength(b, start, int32(len(b))), nil
}

// asMongos makes of the answer to a hello that of a mongos, and leaves every other one.
func asMongos(answer []byte) ([]byte, error) {
	_, _, to, code, rest, _ := wiremessage.ReadHeader(answer)
	var hello bson.Raw
	switch code {
	case wiremessage.OpReply:
		hello = bson.Raw(rest[20:]) // behind flags, cursor, place and number
	case wiremessage.OpMsg:
		hello = bson.Raw(rest[5:]) // behind flags and the kind of the section
	default:
		return nil, fmt.Errorf("an answer with the code %s", code)
	}
	if _, err := hello.LookupErr("setName"); err != nil {
		return answer, nil
	}
	elements, err := hello.Elements()
	if err != nil {
		return nil, err
	}
	as := bson.D{{Key: "msg", Value: "isdbgrid"}}
	for _, e := range elements {
		switch e.Key() {
		case "setName", "setVersion", "hosts", "primary", "me", "electionId", "lastWrite", "secondary",
			"topologyVersion":
		default:
			as = append(as, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	if code == wiremessage.OpMsg {
		return reply(to, as)
	}
	raw, err := bson.Marshal(as)
	if err != nil {
		return nil, err
	}
	start, b := wiremessage.AppendHeaderStart(nil, wiremessage.NextRequestID(), to, wiremessage.OpReply)
	b = append(append(b, rest[:20]...), raw...)
	return bsoncore.UpdateLength(b, start, int32(len(b))), nil
}
