package load

// Ids of the findings of the loader. Each has a fixture folder of the same name in spec/badspecs.
const (
	FileMissing   = "FILE_MISSING"
	FileOutside   = "FILE_OUTSIDE"
	FileTwice     = "FILE_TWICE"
	FileTooLarge  = "FILE_TOO_LARGE"
	FileUnknown   = "FILE_UNKNOWN"
	YAMLSyntax    = "YAML_SYNTAX"
	YAMLEmpty     = "YAML_EMPTY"
	YAMLDocuments = "YAML_DOCUMENTS"
	YAMLDepth     = "YAML_DEPTH"
	YAMLDuplicate = "YAML_DUPLICATE_KEY"
	YAMLAnchor    = "YAML_ANCHOR"
	YAMLAlias     = "YAML_ALIAS"
	YAMLMerge     = "YAML_MERGE"
	YAMLTag       = "YAML_TAG"
	YAMLKey       = "YAML_KEY"
	YAMLNumber    = "YAML_NUMBER"
	YAMLBool      = "YAML_BOOL"
	YAMLNull      = "YAML_NULL"
	YAMLTimestamp = "YAML_TIMESTAMP"
	Schema        = "SCHEMA"
)

// RuleIDs returns the ids of the loader but Schema, whose fixtures are the violations of every constraint.
func RuleIDs() []string {
	return []string{
		FileMissing, FileOutside, FileTwice, FileTooLarge, FileUnknown,
		YAMLSyntax, YAMLEmpty, YAMLDocuments, YAMLDepth, YAMLDuplicate, YAMLAnchor, YAMLAlias, YAMLMerge, YAMLTag, YAMLKey,
		YAMLNumber, YAMLBool, YAMLNull, YAMLTimestamp,
	}
}
