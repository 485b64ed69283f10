package poller

import "github.com/postdate/postdate"

// failureChannel is where an item goes on to if it fails: its own failure channel, else the one that is set for its
// channel. What a failed message left has none, or failures could go round for ever; and none leads back to where
// the item failed.
func (it *Item) failureChannel() postdate.Channel {
	to := it.rec.FailureChannel
	if limit := it.channel.limit; to == "" && limit != nil {
		to = limit.set.FailureChannel
	}
	if it.rec.OfFailure() || to == it.rec.Channel {
		return ""
	}
	return to
}
