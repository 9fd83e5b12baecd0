package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hash returns 12 hex digits of the spec's canonical form: 30 and 30.0 are one, and the order of
// keys, comments and fields that hold their defaults do not count.
func (s *JobSpec) Hash() string {
	text, err := json.Marshal(s)
	if err != nil { // NaN, which no accepted document contains
		text = []byte(err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
