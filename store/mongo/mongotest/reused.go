package mongotest

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Reusing returns a function that gives each check of a suite the address of a database, as create
// left it. The checks of one area, the second part of a test's name, have the same one: to create
// and drop a store's indexes takes ten times as long as to empty the collections. Another area has
// another database, because what was deleted lies in MongoDB's indexes for a while, and scans pass
// over it. Checks must come one after the other, and area after area.
func Reusing(suite testing.TB, members int, create func(uri string)) func(check testing.TB) (uri string) {
	suite.Helper()
	var area, uri string
	var same *reused
	return func(check testing.TB) string {
		check.Helper()
		if _, now, _ := strings.Cut(path.Dir(check.Name()), "/"); uri == "" || now != area {
			area, uri = now, URI(suite, members)
			create(uri)
			same = reuse(suite, uri)
			same.keep(check)
		} else {
			same.restore(check)
		}
		return uri
	}
}

// reused is a database, and what restore leaves in it.
type reused struct {
	db   *mongo.Database
	kept map[string][]bson.Raw // the documents, by collection
}

func reuse(t testing.TB, uri string) *reused {
	t.Helper()
	client := connect(t, uri)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return &reused{db: client.Database(nameOf(t, uri))}
}

// keep notes the present documents of all collections.
func (r *reused) keep(t testing.TB) {
	t.Helper()
	r.kept = map[string][]bson.Raw{}
	for _, name := range r.collections(t) {
		cursor, err := r.db.Collection(name).Find(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var all []bson.Raw
		if err := cursor.All(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		r.kept[name] = all
	}
}

// restore removes all documents, and writes those again that keep noted. A collection that was
// created since then stays, without documents.
func (r *reused) restore(t testing.TB) {
	t.Helper()
	names := r.collections(t)
	for name := range maps.Keys(r.kept) {
		if !slices.Contains(names, name) {
			t.Fatalf("mongotest: somebody dropped the collection %s", name)
		}
	}
	for _, name := range names {
		c := r.db.Collection(name)
		if _, err := c.DeleteMany(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		if len(r.kept[name]) == 0 {
			continue
		}
		if _, err := c.InsertMany(t.Context(), r.kept[name]); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *reused) collections(t testing.TB) []string {
	t.Helper()
	names, err := r.db.ListCollectionNames(t.Context(), bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
