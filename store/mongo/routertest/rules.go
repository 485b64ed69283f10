package routertest

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The rules of a mongos, for MongoDB 6.0 to 8.0. Sources are pages of MongoDB's manual
// (manual: …), files of the repository mongodb/mongo below src/mongo, and tickets.

// Route is which shards a statement goes to.
type Route string

// The routes. A collection that is not sharded lies on one shard, its database's primary.
const (
	Home Route = "home" // the collection is not sharded
	One  Route = "one"  // the shard of one chunk, with its version, for the statement names the whole shard key
	Some Route = "some" // the shards of the chunks of the values that it names of the key's first field
	All  Route = "all"  // every shard
)

// Command is what a client sent.
type Command struct {
	Database    string
	Collection  string
	Name        string // find, insert, update, …
	Transaction bool
	Statements  []Statement
}

// Statement is a part of a command: one for each update, delete and inserted document, one
// for anything else.
type Statement struct {
	Route  Route
	Many   bool // an update or a delete of what may be several documents
	Filter bson.Raw
	Broken string // the rule that it breaks; "": none
}

// Route is that of the command's statements: the widest one.
func (c *Command) Route() Route {
	order := []Route{Home, One, Some, All}
	widest := Home
	for _, s := range c.Statements {
		if slices.Index(order, s.Route) > slices.Index(order, widest) {
			widest = s.Route
		}
	}
	return widest
}

// commandOn takes apart a command on a collection; ok is false for any other command.
func (r *Router) commandOn(database, name string, command bson.Raw) (c Command, ok bool) {
	known := []string{"find", "getMore", "aggregate", "insert", "update", "delete", "findAndModify", "count",
		"distinct", "createIndexes"}
	collection, isText := command.Lookup(name).StringValueOK()
	if name == "getMore" {
		collection, isText = command.Lookup("collection").StringValueOK()
	}
	if !isText || !slices.Contains(known, name) || database == "admin" || database == "config" {
		return c, false
	}
	auto, isBool := command.Lookup("autocommit").BooleanOK()
	c = Command{Database: database, Collection: collection, Name: name, Transaction: isBool && !auto}
	r.mu.Lock()
	key := r.keys[database+"."+collection]
	r.mu.Unlock()
	c.Statements = statementsOf(name, command, key)
	for i := range c.Statements {
		if s := &c.Statements[i]; s.Broken == "" {
			s.Broken = broken(&c, s, command, key)
		}
	}
	return c, true
}

func statementsOf(name string, command bson.Raw, key bson.D) (all []Statement) {
	list := func(field string) []bson.RawValue {
		array, _ := command.Lookup(field).ArrayOK()
		values, _ := array.Values()
		return values
	}
	switch name {
	case "getMore": // where its cursor is
		all = append(all, Statement{Route: Home})
	case "insert":
		for _, v := range list("documents") {
			all = append(all, Statement{Route: route(v.Document(), key), Filter: v.Document()})
		}
	case "update":
		for _, v := range list("updates") {
			many, _ := v.Document().Lookup("multi").BooleanOK()
			filter := v.Document().Lookup("q").Document()
			s := Statement{Route: route(filter, key), Filter: filter, Many: many}
			upsert, _ := v.Document().Lookup("upsert").BooleanOK()
			s.Broken = brokenUpdate(&s, v.Document().Lookup("u"), upsert, key)
			all = append(all, s)
		}
	case "delete":
		for _, v := range list("deletes") {
			limit, _ := v.Document().Lookup("limit").AsInt64OK()
			filter := v.Document().Lookup("q").Document()
			all = append(all, Statement{Route: route(filter, key), Filter: filter, Many: limit == 0})
		}
	case "aggregate":
		var match bson.Raw
		if stages := list("pipeline"); len(stages) > 0 {
			match, _ = stages[0].Document().Lookup("$match").DocumentOK()
		}
		all = append(all, Statement{Route: route(match, key), Filter: match})
	default:
		filter, ok := command.Lookup("filter").DocumentOK()
		if !ok {
			filter, _ = command.Lookup("query").DocumentOK()
		}
		all = append(all, Statement{Route: route(filter, key), Filter: filter})
	}
	return all
}

// route is where a filter goes. It goes to one chunk only where it names every field of the
// key by one value; to the chunks of the values of the first field where it names those, in
// each of its branches; else to all. A hashed field serves single values and no ranges.
// (s/shard_key_pattern_query_util.cpp getShardIdsForQuery, flattenBounds; manual: Sharded
// Cluster Query Routing, Targeted Operations vs. Broadcast Operations)
func route(filter bson.Raw, key bson.D) Route {
	if key == nil {
		return Home
	}
	if whole(filter, key) {
		return One
	}
	if names(filter, key[0].Key) {
		return Some
	}
	return All
}

// whole says whether a filter names each field of the key by one value.
func whole(filter bson.Raw, key bson.D) bool {
	for _, e := range key {
		v, err := filter.LookupErr(e.Key)
		if err != nil || len(operators(v)) > 0 {
			return false
		}
	}
	return true
}

// names says whether a filter names values of a field, in each of its branches.
func names(filter bson.Raw, field string) bool {
	if v, err := filter.LookupErr(field); err == nil {
		ops := operators(v)
		return len(ops) == 0 || len(ops) == 1 && (ops[0] == "$in" || ops[0] == "$eq")
	}
	array, ok := filter.Lookup("$or").ArrayOK()
	if !ok {
		return false
	}
	branches, err := array.Values()
	return err == nil && len(branches) > 0 && !slices.ContainsFunc(branches,
		func(v bson.RawValue) bool { return !names(v.Document(), field) })
}

// operators are those of a condition; none where it is a plain value.
func operators(v bson.RawValue) (names []string) {
	d, ok := v.DocumentOK()
	if !ok {
		return nil
	}
	elements, _ := d.Elements()
	for _, e := range elements {
		if strings.HasPrefix(e.Key(), "$") {
			names = append(names, e.Key())
		}
	}
	return names
}

// broken is the rule that a statement on a sharded collection breaks.
func broken(c *Command, s *Statement, command bson.Raw, key bson.D) string {
	start, _ := command.Lookup("startTransaction").BooleanOK()
	level, _ := command.Lookup("readConcern", "level").StringValueOK()
	switch {
	case start && level != "snapshot":
		// SERVER-77506: data and version may not fit each other; manual: Transactions and
		// Sharded Clusters, Read Concerns: only "snapshot" is consistent across shards
		return "a transaction that does not read one snapshot"
	case key == nil:
		return ""
	case level == "available":
		return "a read that may return what another shard has by now" // manual: Read Concern "available"
	case c.Name == "distinct":
		return "a distinct, which returns what other shards have by now too" // SERVER-13116
	case c.Name == "createIndexes":
		return brokenIndex(command)
	case s.Many && !c.Transaction && s.Route != One:
		// s/write_ops/write_op.cpp WriteOp::targetWrites: to all shards, with
		// ShardVersion::IGNORED; while a chunk moves, a document is changed 0, 1, 2 or more
		// times: TOOLS-3431, DRIVERS-818. One that one shard takes alone is not all or nothing
		// either: SERVER-91465.
		return "a write of several documents outside of a transaction"
	case (c.Name == "update" || c.Name == "delete" || c.Name == "findAndModify") && !s.Many && s.Route != One:
		// Refused before 7.1 or sent to all shards, by version and filter: SERVER-105800,
		// s/collection_routing_info_targeter.cpp targetUpdate, targetDelete
		return "a write of one document that does not name the whole shard key"
	case c.Name == "insert" && s.Route != One:
		return "a document without its shard key"
	case c.Name == "aggregate":
		return brokenPipeline(command)
	}
	return ""
}

// brokenUpdate is the rule that an update breaks by what it writes.
func brokenUpdate(s *Statement, update bson.RawValue, upsert bool, key bson.D) string {
	if key == nil {
		return ""
	}
	if upsert && s.Route != One {
		return "an upsert that does not name the whole shard key" // targetUpdate, before 7.1
	}
	d, ok := update.DocumentOK()
	if !ok {
		return ""
	}
	elements, _ := d.Elements()
	for _, e := range elements {
		fields, ok := e.Value().DocumentOK()
		if !ok || !strings.HasPrefix(e.Key(), "$") {
			continue
		}
		for _, k := range key {
			if _, err := fields.LookupErr(k.Key); err == nil {
				// manual: Change a Document's Shard Key Value
				return "an update of the shard key outside of the forms that are allowed"
			}
		}
	}
	return ""
}

// brokenIndex refuses a unique index: none can have a hashed shard key as its beginning
// (manual: Shard Key Indexes, Unique Indexes).
func brokenIndex(command bson.Raw) string {
	array, _ := command.Lookup("indexes").ArrayOK()
	indexes, _ := array.Values()
	for _, v := range indexes {
		if unique, _ := v.Document().Lookup("unique").BooleanOK(); unique {
			return "a unique index"
		}
	}
	return ""
}

// brokenPipeline refuses to group what a sharded collection has in order: before 8.1 the
// shard filter keeps the planner from a DISTINCT_SCAN, and it reads all there is
// (db/query/get_executor.cpp turnIxscanIntoDistinctIxscan; jstests for group conversion are
// tagged assumes_unsharded_collection).
func brokenPipeline(command bson.Raw) string {
	array, _ := command.Lookup("pipeline").ArrayOK()
	stages, _ := array.Values()
	sorted := false
	for _, v := range stages {
		if _, err := v.Document().LookupErr("$sort"); err == nil {
			sorted = true
		}
		if group, ok := v.Document().Lookup("$group").DocumentOK(); ok && sorted &&
			strings.Contains(group.String(), "$first") {
			return "a $group of the first of each, which reads everything where it is sharded"
		}
	}
	return ""
}
