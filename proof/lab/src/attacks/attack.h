// What the parts of the attacker have in common.

// Ends the process with a message and status 3 unless the condition holds.
void must(int ok, const char *what);
// Writes a text into a file.
void put(const char *path, const char *text);
// slow FOLDER COUNT: processes die that have mapped a file whose reads never end.
int slow(char **words);
// probe COMMAND...: root starts the part of the core helper that has no rights, and tries what it can do.
int probe(char **words);
