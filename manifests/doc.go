// Package manifests reads and edits the YAML and JSON files in which jobs are declared.
//
// It promises:
//
//   - Decode never fails as a whole and never panics, whatever the bytes. What is wrong is told
//     with file, line and field path, and one bad document never holds up another.
//   - Decoding is strict: unknown fields, duplicate fields and fields whose case differs are
//     errors. Integers are exact. Values are those that kubectl would read.
//   - What stands in status never decides whether a document is accepted.
//   - An edit changes the bytes of the value it sets and no others: not a comment, a blank line,
//     a quote or a line ending. Every edited file is decoded again, and where anything but the
//     value differs from before, the edit is refused.
//   - Setting what is already there changes no byte.
//
// It does not promise to be able to make every edit: a value that other parts of the file share
// by an alias is refused, with an error. Edits work on bytes and know nothing of files being
// saved meanwhile; Tree.Replace takes care of that. Documents of other API groups are counted and
// otherwise left alone.
package manifests
