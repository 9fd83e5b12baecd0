package controller

import (
	"cmp"
	"fmt"
	"math"

	"leasehold.dev/leasehold/store"
)

// EventText says in one sentence what happened.
func EventText(e store.Event) string {
	system := e.Clock != nil && math.Abs(*e.Clock-float64(e.At.UnixMilli())/1000) < 24*60*60
	who, text := cmp.Or(e.Owner, "nobody"), ""
	switch {
	case e.Reason != "" && e.Verb == "claim":
		text = fmt.Sprintf("%s's claim was refused", who)
	case e.Reason != "":
		text = fmt.Sprintf("%s's %s with fence %d was refused", who, e.Verb, e.Fence)
	default:
		switch e.Verb {
		case "enqueued":
			text = "the job is in the store"
		case "claimed":
			text = fmt.Sprintf("%s took fence %d until %s", who, e.Fence, moment(e.Until, system))
		case "renewed":
			text = fmt.Sprintf("%s renewed fence %d until %s", who, e.Fence, moment(e.Until, system))
		case "completed":
			text = fmt.Sprintf("%s completed it with fence %d", who, e.Fence)
		case "released":
			text = fmt.Sprintf("%s released fence %d", who, e.Fence)
			if e.Message != "" {
				text = fmt.Sprintf("%s lost fence %d", who, e.Fence)
			}
		case "jumped":
			text = fmt.Sprintf("fences go on above %d", e.Fence)
		case "reset":
			text = "the clock begins anew"
		case "restored":
			text = fmt.Sprintf("the completion by %s with fence %d was brought back", who, e.Fence)
		case "deleted":
			text = fmt.Sprintf("the row was deleted; its fence %d is kept", e.Fence)
		default:
			text = fmt.Sprintf("%s by %s with fence %d", e.Verb, who, e.Fence)
		}
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Clock != nil && !system {
		text += " (clock " + number(*e.Clock) + ")"
	}
	return text
}
