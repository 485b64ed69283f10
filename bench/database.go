package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	driver "go.mongodb.org/mongo-driver/v2/mongo/options"
)

// database is a new database of MongoDB, for one measurement.
type database struct {
	address string // with the database's name
	*mongo.Database
}

// newDatabase names a database on the servers of an address. The nodes make it.
func newDatabase(ctx context.Context, servers string) (*database, error) {
	name := randomName("postdate-bench-")
	address, err := withDatabase(servers, name)
	if err != nil {
		return nil, err
	}
	c, err := mongo.Connect(driver.Client().ApplyURI(address).SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		return nil, fmt.Errorf("cannot use the address of MongoDB: %w", err)
	}
	if err := c.Ping(ctx, nil); err != nil {
		return nil, fmt.Errorf("MongoDB does not answer: start a replica set, and name it in -mongodb: %w", err)
	}
	return &database{address, c.Database(name)}, nil
}

// withDatabase puts the database's name into an address that has none.
func withDatabase(address, name string) (string, error) {
	before, settings, _ := strings.Cut(address, "?")
	scheme, hosts, ok := strings.Cut(strings.TrimSuffix(before, "/"), "://")
	if !ok || hosts == "" || strings.Contains(hosts, "/") {
		return "", fmt.Errorf("%q is no address of MongoDB without a database: "+
			"give one like mongodb://127.0.0.1:27017/?replicaSet=rs0; each measurement makes its own database", address)
	}
	address = scheme + "://" + hosts + "/" + name
	if settings != "" {
		address += "?" + settings
	}
	return address, nil
}

// drop removes the database, also after an interrupt.
func (d *database) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer d.Client().Disconnect(ctx)
	return d.Drop(ctx)
}

// admin runs a command of the database admin.
func (d *database) admin(ctx context.Context, name string, into any) error {
	return d.Client().Database("admin").RunCommand(ctx, bson.D{{Key: name, Value: 1}}).Decode(into)
}

// checkpoint makes the server write all, so that the sizes of its files are those of the data.
func (d *database) checkpoint(ctx context.Context) error {
	var answer bson.D
	return d.admin(ctx, "fsync", &answer)
}

// disk returns the bytes of the database's files.
func (d *database) disk(ctx context.Context) (int64, error) {
	if err := d.checkpoint(ctx); err != nil {
		return 0, err
	}
	var stats struct {
		TotalSize float64 `bson:"totalSize"`
	}
	err := d.RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Decode(&stats)
	return int64(stats.TotalSize), err
}

// processor returns the processor time of the primary since its start.
func (d *database) processor(ctx context.Context) (time.Duration, error) {
	var status struct {
		Extra struct {
			User   int64 `bson:"user_time_us"`
			System int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	err := d.admin(ctx, "serverStatus", &status)
	return time.Duration(status.Extra.User+status.Extra.System) * time.Microsecond, err
}
