package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/store"
)

type tenantSettings struct {
	Tenant            string   `bson:"_id"`
	RequestsPerSecond *float64 `bson:"requestsPerSecond,omitempty"`
	MessagesPerSecond *float64 `bson:"messagesPerSecond,omitempty"`
	PendingMax        *int64   `bson:"pendingMax,omitempty"`
	BytesMax          *int64   `bson:"bytesMax,omitempty"`
	ChannelsMax       *int64   `bson:"channelsMax,omitempty"`
	Weight            *int     `bson:"weight,omitempty"`
}

// Tenants implements store.Tenants.
func (s *Store) Tenants(ctx context.Context) ([]store.TenantSettings, error) {
	var all []tenantSettings
	err := s.reading(ctx, func(ctx context.Context) error {
		cursor, err := s.tenants.Find(ctx, doc())
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	settings := make([]store.TenantSettings, len(all))
	for i, t := range all {
		settings[i] = store.TenantSettings(t)
	}
	return settings, readError("reading the tenants' settings", err)
}

// SetTenant implements store.Tenants.
func (s *Store) SetTenant(ctx context.Context, t store.TenantSettings) error {
	err := s.within(ctx, func(ctx context.Context) error {
		return s.repeat(ctx, func(ctx context.Context) error {
			if t.None() {
				_, err := s.tenants.DeleteOne(ctx, doc("_id", t.Tenant), options.DeleteOne().SetHint(indexID))
				return err
			}
			_, err := s.tenants.ReplaceOne(ctx, doc("_id", t.Tenant), tenantSettings(t),
				options.Replace().SetUpsert(true).SetHint(indexID))
			return err
		})
	})
	return writeError("setting a tenant", err)
}
