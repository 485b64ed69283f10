package main

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo/options"
)

// wiredTiger is the part of WiredTiger's statistics of one file that says what is in the cache, and
// what of the file is free.
type wiredTiger struct {
	Cache struct {
		Bytes int64 `bson:"bytes currently in the cache"`
	} `bson:"cache"`
	Blocks struct {
		Free int64 `bson:"file bytes available for reuse"`
	} `bson:"block-manager"`
}

// collection reads the sizes of a collection.
func (d *database) collection(ctx context.Context, name string) (c collection, err error) {
	var stats struct {
		Size       int64                 `bson:"size"`
		Storage    int64                 `bson:"storageSize"`
		IndexSizes map[string]int64      `bson:"indexSizes"`
		WiredTiger wiredTiger            `bson:"wiredTiger"`
		Details    map[string]wiredTiger `bson:"indexDetails"`
	}
	ask := bson.D{{Key: "collStats", Value: name}, {Key: "indexDetails", Value: true}}
	if err := d.RunCommand(ctx, ask).Decode(&stats); err != nil {
		return c, fmt.Errorf("cannot read the sizes of %s: %w", name, err)
	}
	c = collection{data: stats.Size, files: stats.Storage - stats.WiredTiger.Blocks.Free,
		free: stats.WiredTiger.Blocks.Free, cache: stats.WiredTiger.Cache.Bytes, indexes: stats.IndexSizes}
	for index, one := range stats.Details {
		c.indexes[index] -= one.Blocks.Free
		c.free += one.Blocks.Free
		c.indexCache += one.Cache.Bytes
	}
	return c, nil
}

// oplogEnd returns the place of the oplog's last entry.
func (d *database) oplogEnd(ctx context.Context) (bson.Timestamp, error) {
	var last struct {
		At bson.Timestamp `bson:"ts"`
	}
	newest := driver.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})
	err := d.Client().Database("local").Collection("oplog.rs").FindOne(ctx, bson.D{}, newest).Decode(&last)
	if err != nil {
		return last.At, fmt.Errorf("cannot read the oplog: is it a replica set, and may the user read local? %w", err)
	}
	return last.At, nil
}

// oplogSince returns the bytes of all entries after a place.
func (d *database) oplogSince(ctx context.Context, from bson.Timestamp) (int64, error) {
	entries, err := d.Client().Database("local").Collection("oplog.rs").Aggregate(ctx, bson.A{
		bson.D{{Key: "$match", Value: bson.D{{Key: "ts", Value: bson.D{{Key: "$gt", Value: from}}}}}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil},
			{Key: "bytes", Value: bson.D{{Key: "$sum", Value: bson.D{{Key: "$bsonSize", Value: "$$ROOT"}}}}}}}},
	})
	if err != nil {
		return 0, err
	}
	defer entries.Close(ctx)
	var total struct {
		Bytes int64 `bson:"bytes"`
	}
	if entries.Next(ctx) {
		err = entries.Decode(&total)
	}
	return total.Bytes, err
}
