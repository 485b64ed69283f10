package routertest

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The codes of a mongos's refusals.
const (
	codeUnknownError       = 8
	codeUnauthorized       = 13 // reads of config take a role like clusterMonitor: builtin_roles.yml
	codeIllegalOperation   = 20 // before 6.0: sharding is not enabled for the database
	codeAlreadyInitialized = 23 // sharded, by another key or with other options
	codeInvalidOptions     = 72
)

func refusal(to int32, code int, format string, args ...any) ([]byte, error) {
	return reply(to, bson.D{
		{Key: "ok", Value: 0.0}, {Key: "code", Value: code}, {Key: "errmsg", Value: fmt.Sprintf(format, args...)},
	})
}

// shardCollection shards in name. The same key again succeeds, another one does not
// (sharding_ddl_util.cpp checkIfCollectionAlreadySharded); a collection that is not empty
// needs an index that begins with the key (manual, Shard Key Indexes).
func (r *Router) shardCollection(id int32, namespace string, command bson.Raw) ([]byte, error) {
	var key bson.D
	if err := bson.Unmarshal(command.Lookup("key").Document(), &key); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notEnabled {
		return refusal(id, codeIllegalOperation, "sharding not enabled for db %s", strings.SplitN(namespace, ".", 2)[0])
	}
	if old := r.keys[namespace]; old != nil {
		if fmt.Sprint(old) != fmt.Sprint(key) {
			return refusal(id, codeAlreadyInitialized, "sharding already enabled for collection %s", namespace)
		}
		return reply(id, bson.D{{Key: "ok", Value: 1.0}, {Key: "collectionsharded", Value: namespace}})
	}
	database, collection, _ := strings.Cut(namespace, ".")
	on := r.direct.Database(database).Collection(collection)
	count, err := on.EstimatedDocumentCount(context.Background())
	if err != nil {
		return nil, err
	}
	if count > 0 {
		indexes, err := on.Indexes().ListSpecifications(context.Background())
		if err != nil {
			return nil, err
		}
		found := false
		for _, index := range indexes {
			found = found || begins(index.KeysDocument, key)
		}
		if !found {
			return refusal(id, codeInvalidOptions,
				"please create an index that starts with the proposed shard key before sharding the collection")
		}
	} else if err := r.createKeyIndex(database, collection, key); err != nil {
		return nil, err
	}
	r.keys[namespace] = key
	return reply(id, bson.D{{Key: "ok", Value: 1.0}, {Key: "collectionsharded", Value: namespace}})
}

// createKeyIndex makes the index that a mongos makes for an empty collection.
func (r *Router) createKeyIndex(database, collection string, key bson.D) error {
	var name []string
	for _, e := range key {
		name = append(name, fmt.Sprintf("%s_%v", e.Key, e.Value))
	}
	err := r.direct.Database(database).RunCommand(context.Background(), bson.D{
		{Key: "createIndexes", Value: collection},
		{Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: key},
			{Key: "name", Value: strings.Join(name, "_")}}}},
	}).Err()
	if err != nil && strings.Contains(err.Error(), "already exists with a different name") {
		return nil
	}
	return err
}

// begins says whether an index begins with a shard key.
func begins(index bson.Raw, key bson.D) bool {
	elements, err := index.Elements()
	if err != nil || len(elements) < len(key) {
		return false
	}
	for i, e := range key {
		var value any
		if err := elements[i].Value().Unmarshal(&value); err != nil || elements[i].Key() != e.Key ||
			fmt.Sprint(value) != fmt.Sprint(e.Value) {
			return false
		}
	}
	return true
}

// findConfig answers a find in config.collections, by _id.
func (r *Router) findConfig(id int32, command bson.Raw) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied {
		return refusal(id, codeUnauthorized, "not authorized on config to execute command")
	}
	if on := command.Lookup("find").StringValue(); on != "collections" {
		return nil, fmt.Errorf("the model of a mongos knows no config.%s", on)
	}
	found := bson.A{}
	for namespace, key := range r.keys {
		if want, ok := command.Lookup("filter", "_id").StringValueOK(); !ok || want == namespace {
			found = append(found, bson.D{{Key: "_id", Value: namespace}, {Key: "key", Value: key},
				{Key: "unique", Value: false}})
		}
	}
	return reply(id, bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: "config.collections"}, {Key: "firstBatch", Value: found},
	}}})
}
