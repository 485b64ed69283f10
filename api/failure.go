package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postdate/postdate"
)

// channelName is a channel that a body may name, or remove with null.
type channelName struct {
	text  string
	given bool
	null  bool
}

// UnmarshalJSONFrom reads a string or null.
func (n *channelName) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	if kind != '"' {
		n.given, n.null = true, kind == 'n'
		if err := dec.SkipValue(); err != nil || kind == 'n' {
			return err
		}
		return wrongKind("a string or null", kind)
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	*n = channelName{text: token.String(), given: true}
	return nil
}

// failureChannel reads the failure channel of what goes to a channel; "": none is given, or it is removed.
func (c *checker) failureChannel(name channelName, of postdate.Channel) (postdate.Channel, *Problem) {
	const pointer = "/failureChannel"
	if !name.given || name.null {
		return "", nil
	}
	if name.text == "" {
		return "", fieldProblem(pointer, invalid("failureChannel is empty: name a channel, or leave it out"))
	}
	channel, p := c.channel(name.text, pointer)
	if p == nil {
		p = checkFailureChannel(channel, of)
	}
	return channel, p
}

// checkFailureChannel refuses a failure channel that is where a message fails.
func checkFailureChannel(channel, of postdate.Channel) *Problem {
	if channel != "" && channel == of {
		return fieldProblem("/failureChannel", invalid("failureChannel is %s, where the message itself goes: "+
			"name another one", clip(channel.Shown())))
	}
	return nil
}
