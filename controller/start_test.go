package controller

import "testing"

// A save that comes between the first look at a manifest and the first pass over it is not missed.
func TestSaveWhileStarting(t *testing.T) {
	r := newRig(t, map[string]string{"j.yaml": manifest("j", 0)})
	r.once()
	want := []string{"worker-b 2 60", "worker-a 3 90", "worker-b 4 120", "worker-a 5 150", "worker-b 6 180", "worker-a 7 210", "worker-b 8 240", "worker-a 9 270"}
	for i, shown := range want {
		r.start()
		r.lease(float64(30*(i+1)), shown)
		r.halt()
	}
}
