package mongo

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/postdate/postdate"
)

// durable sets what the promises rest on, whatever the address says: writes wait for the
// journals of a majority, and reads go to the primary and see what a majority has.
func durable(o *options.ClientOptions) {
	journal := true
	o.SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal})
	o.SetReadConcern(readconcern.Majority())
	o.SetReadPreference(readpref.Primary())
	o.SetRetryWrites(true)
	o.SetRetryReads(true)
}

// assurance checks, on the commands themselves as they go out while the store is opened, that
// they ask for what durable set.
type assurance struct {
	mu          sync.Mutex
	wrote, read bool     // such commands were seen
	weak        bson.Raw // a command that asks for less
}

// monitor shows every command to the assurance.
func (a *assurance) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { a.see(e) }}
}

func (a *assurance) see(e *event.CommandStartedEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.CommandName {
	case "insert", "update", "findAndModify":
		a.wrote = true
		w, _ := e.Command.Lookup("writeConcern", "w").StringValueOK()
		j, _ := e.Command.Lookup("writeConcern", "j").BooleanOK()
		if w != "majority" || !j {
			a.weak = append(bson.Raw(nil), e.Command...)
		}
	case "find":
		a.read = true
		if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); level != "majority" {
			a.weak = append(bson.Raw(nil), e.Command...)
		}
	}
}

// check fails if a command asked for less, or if none was seen.
func (a *assurance) check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.weak != nil {
		return postdate.E(postdate.KindInternal,
			"a command went out that does not ask for a majority with its journal: %.300s", a.weak.String())
	}
	if !a.wrote || !a.read {
		return postdate.E(postdate.KindInternal,
			"the store was opened without a write and a read, so that nothing shows what they ask for")
	}
	return nil
}
