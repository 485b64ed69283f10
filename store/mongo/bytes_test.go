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
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// BenchmarkBytes measures what a message takes on the disk while it is pending, then once it is
// delivered, and in an inbox: payloads of 256 random bytes, ids that are UUIDs of version
// 7, due at any time within a month.
//
//	go test ./store/mongo -run '^$' -bench Bytes -benchtime 500000x
//	go test ./store/mongo -run '^$' -bench Bytes/replica -benchtime 200000x
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
	db := client.Database(databaseOf(b, direct))
	reportBytes(b, db, "pending", "messages", "registry")
	deliverAll(b, s)
	reportBytes(b, db, "delivered", "messages", "registry")
	reportBytes(b, db, "inbox", "inboxes")
}

// deliverAll notes every pending message as delivered when it was due, and puts it into an
// inbox.
func deliverAll(b *testing.B, s *mongo.Store) {
	claims := (&bench{Store: s}).claims(b)
	for done, number := 0, uint64(1); done < b.N; number++ {
		for i := range claims {
			claims[i].Number, claims[i].To, claims[i].Scan.Limit = number, bucket.UpTo(benchDue+1<<40), benchPage/len(claims)
		}
		var settle []store.Settlement
		var letters []store.InboxMessage
		for i, r := range s.Claim(b.Context(), claims) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
			for _, m := range r.Due {
				settle = append(settle, store.Settlement{
					Key: m.Key, ExecutionTime: m.ExecutionTime, Version: m.Version, Token: claims[i].Token,
					How: store.SettleDelivered, At: m.ExecutionTime, Attempts: 1,
				})
				letters = append(letters, store.InboxMessage{
					Tenant: m.Tenant, Inbox: "a", ScheduleID: m.ScheduleID, ExecutionTime: m.ExecutionTime, DeliveredAt: m.ExecutionTime,
					Attempt: 1, ContentType: m.ContentType, Payload: m.Payload,
				})
			}
		}
		if len(settle) == 0 {
			b.Fatal("nothing is due")
		}
		if err := s.AppendInbox(b.Context(), letters); err != nil {
			b.Fatal(err)
		}
		if err := s.Settle(b.Context(), settle); err != nil {
			b.Fatal(err)
		}
		done += len(settle)
	}
}

// reportBytes reports what these collections take for each message.
func reportBytes(b *testing.B, db *driver.Database, what string, collections ...string) {
	if err := db.Client().Database("admin").RunCommand(b.Context(), bson.D{{Key: "fsync", Value: 1}}).Err(); err != nil {
		b.Fatal(err)
	}
	whole := 0.0
	report := func(bytes int64, unit string) {
		each := float64(bytes) / float64(b.N)
		b.ReportMetric(each, what+"/"+unit)
		whole += each
	}
	for _, name := range collections {
		var stats struct {
			Size, StorageSize, FreeStorageSize int64
			IndexSizes                         map[string]int64
		}
		err := db.RunCommand(b.Context(), bson.D{{Key: "collStats", Value: name}}).Decode(&stats)
		if err != nil {
			b.Fatal(err)
		}
		if stats.Size == 0 {
			continue // of a replica set
		}
		b.ReportMetric(float64(stats.Size)/float64(b.N), what+"/"+name+"-BSON-B")
		b.ReportMetric(float64(stats.FreeStorageSize)/float64(b.N), what+"/"+name+"-free-B")
		report(stats.StorageSize, name+"-disk-B")
		for index, bytes := range stats.IndexSizes {
			report(bytes, name+"/"+index+"-B")
		}
	}
	b.ReportMetric(whole, what+"/whole-B")
}
