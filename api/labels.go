package api

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postdate/postdate"
)

// labelList is decoded from an array of strings. nil: the field is not there. null is an empty list, as it
// removes the labels in a merge patch.
type labelList []string

// UnmarshalJSONFrom reads the array item by item.
func (l *labelList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var texts textList
	err := texts.UnmarshalJSONFrom(dec)
	if *l = labelList(texts); texts == nil {
		*l = labelList{}
	}
	return err
}

// labels sets m's labels to those in the body.
func (b *messageBody) labels(m *postdate.Message) *Problem {
	if len(b.Labels) > postdate.LabelsMax {
		return fieldProblem("/labels", invalid("%d labels are too many: at most %d are allowed",
			len(b.Labels), postdate.LabelsMax))
	}
	for i, label := range b.Labels {
		err := postdate.CheckLabel(label)
		if err == nil && slices.Contains(b.Labels[:i], label) {
			err = invalid("label %q stands twice: leave one", label)
		}
		if err != nil {
			return fieldProblem("/labels/"+strconv.Itoa(i), err)
		}
	}
	m.Labels = slices.Clip([]string(b.Labels))
	if len(m.Labels) == 0 {
		m.Labels = nil
	}
	return nil
}

// appendLabels appends the member labels, if there are any.
func appendLabels(b []byte, labels []string) []byte {
	for i, label := range labels {
		if i == 0 {
			b = append(b, `,"labels":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendText(b, label)
	}
	if len(labels) > 0 {
		b = append(b, ']')
	}
	return b
}
