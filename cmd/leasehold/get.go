package main

import "github.com/spf13/cobra"

func newGetCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "get jobs", Short: "Show jobs", RunE: func(*cobra.Command, []string) error { return nil }}
}
