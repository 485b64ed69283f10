package mongo_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// BenchmarkBytes measures what a pending message takes on the disk: payloads of 256 random
// bytes, ids that are UUIDs, due at any time within a month.
//
//	go test ./store/mongo -run '^$' -bench Bytes -benchtime 500000x
func BenchmarkBytes(b *testing.B) {
	b.Run("replica set", func(b *testing.B) {
		uri := mongotest.URI(b, 1)
		measureBytes(b, uri, uri)
	})
	b.Run("sharded", func(b *testing.B) {
		uri := mongotest.URI(b, 1)
		measureBytes(b, uri, routertest.Start(b, uri).URI())
	})
}

func measureBytes(b *testing.B, direct, uri string) {
	c := mongo.DefaultConfig(uri)
	s := open(b, c)
	defer s.Close()
	const batch = 500
	for from := 0; from < b.N; from += batch {
		var all []postdate.Message
		for range min(batch, b.N-from) {
			m := testMessage(uuid.Must(uuid.NewV7()).String(), c.Buckets, benchDue+postdate.Time(rand.N(30*24*3_600_000)))
			m.ContentType, m.Payload = "application/json", benchPayloads[rand.N(len(benchPayloads))]
			all = append(all, m)
		}
		for _, r := range s.Insert(b.Context(), all) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	client, err := driver.Connect(options.Client().ApplyURI(direct))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	if err := client.Database("admin").RunCommand(b.Context(), bson.D{{Key: "fsync", Value: 1}}).Err(); err != nil {
		b.Fatal(err)
	}
	whole := 0.0
	report := func(bytes int64, unit string) {
		each := float64(bytes) / float64(b.N)
		b.ReportMetric(each, unit)
		whole += each
	}
	for _, name := range []string{"messages", "registry"} {
		var stats struct {
			Size, StorageSize int64
			IndexSizes        map[string]int64
		}
		err := client.Database(databaseOf(b, direct)).RunCommand(b.Context(), bson.D{{Key: "collStats", Value: name}}).Decode(&stats)
		if err != nil {
			b.Fatal(err)
		}
		if stats.Size == 0 {
			continue // of a replica set
		}
		b.ReportMetric(float64(stats.Size)/float64(b.N), name+"-BSON-B")
		report(stats.StorageSize, name+"-disk-B")
		for index, bytes := range stats.IndexSizes {
			report(bytes, name+"/"+index+"-B")
		}
	}
	b.ReportMetric(whole, "whole-B")
}
