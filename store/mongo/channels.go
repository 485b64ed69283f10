package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

type channelSettings struct {
	Route        string  `bson:"_id"`
	Paused       bool    `bson:"paused"`
	MaxPerSecond float64 `bson:"maxPerSecond"`
	MaxInFlight  int     `bson:"maxInFlight"`

	FailureChannel string `bson:"failureChannel,omitempty"`
}

// Channels implements store.Channels.
func (s *Store) Channels(ctx context.Context) ([]store.ChannelSettings, error) {
	var all []channelSettings
	err := s.reading(ctx, func(ctx context.Context) error {
		cursor, err := s.channels.Find(ctx, doc())
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	settings := make([]store.ChannelSettings, len(all))
	for i, c := range all {
		settings[i] = store.ChannelSettings{
			Route: postdate.Route(c.Route), Paused: c.Paused, MaxPerSecond: c.MaxPerSecond,
			MaxInFlight: c.MaxInFlight, FailureChannel: postdate.Channel(c.FailureChannel),
		}
	}
	return settings, readError("reading the channels' settings", err)
}

// SetChannel implements store.Channels.
func (s *Store) SetChannel(ctx context.Context, c store.ChannelSettings) error {
	err := s.within(ctx, func(ctx context.Context) error {
		return s.repeat(ctx, func(ctx context.Context) error {
			if c.None() {
				_, err := s.channels.DeleteOne(ctx, doc("_id", string(c.Route)), options.DeleteOne().SetHint(indexID))
				return err
			}
			_, err := s.channels.ReplaceOne(ctx, doc("_id", string(c.Route)), channelSettings{
				Route: string(c.Route), Paused: c.Paused, MaxPerSecond: c.MaxPerSecond, MaxInFlight: c.MaxInFlight,
				FailureChannel: string(c.FailureChannel),
			}, options.Replace().SetUpsert(true).SetHint(indexID))
			return err
		})
	})
	return writeError("setting a channel", err)
}
