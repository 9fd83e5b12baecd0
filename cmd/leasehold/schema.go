package main

import (
	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newSchemaCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of manifests, for editors",
		Long: `Prints the JSON schema (draft 7) of Job manifests, with which editors complete, explain and check
them while one types. It accepts everything that leasehold accepts, and documents of other API groups
as they are. What a schema cannot say, such as that no two workers have one name, only
'leasehold validate' finds.

'leasehold run --init' writes the schema beside the samples, which name it in their first line. An
update of leasehold leaves that file alone; write it again then.`,
		Example: `  # Put the schema beside the manifests
  leasehold schema >jobs/` + manifests.SchemaFile + `

  # The first line of each document whose editor speaks to yaml-language-server
  # yaml-language-server: $schema=` + manifests.SchemaFile,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := g.Out.Write(manifests.JSONSchema)
			return err
		},
	}
}
