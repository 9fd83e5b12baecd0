package timeline

import "testing"

func TestLabelOfNothing(t *testing.T) {
	for _, at := range []float64{0, -1e-17} {
		for _, step := range []float64{5, 0.5} {
			if got := (&Timeline{}).label(at, step); got[0] == '-' {
				t.Errorf("label(%v, %v) = %s", at, step, got)
			}
		}
	}
}
