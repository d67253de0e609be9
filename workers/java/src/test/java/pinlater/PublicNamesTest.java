package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.source.tree.ClassTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.ModifiersTree;
import com.sun.source.tree.Tree;
import com.sun.source.tree.VariableTree;
import com.sun.source.util.DocTrees;
import com.sun.source.util.JavacTask;
import com.sun.source.util.TreePath;
import com.sun.source.util.TreePathScanner;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.lang.model.element.Modifier;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;

/** Every public name of the kit has Javadoc. (Doclint would also want a tag for each parameter, however plain it is.) */
final class PublicNamesTest {
    private static final Path SOURCES = Path.of("src", "main", "java", "pinlater");

    @Test
    void haveJavadoc() throws Exception {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        List<Path> files;
        try (Stream<Path> found = Files.list(SOURCES)) {
            files = found.toList();
        }
        List<String> missing = new ArrayList<>();
        List<String> seen = new ArrayList<>();
        try (StandardJavaFileManager manager = compiler.getStandardFileManager(null, null, null)) {
            JavacTask task = (JavacTask)
                    compiler.getTask(null, manager, null, null, null, manager.getJavaFileObjectsFromPaths(files));
            DocTrees docs = DocTrees.instance(task);
            task.parse().forEach(unit -> new Scanner(docs, missing, seen).scan(unit, null));
        }
        assertTrue(seen.size() > 100, () -> "public names that were found: " + seen);
        assertEquals(List.of(), missing);
    }

    private static final class Scanner extends TreePathScanner<Void, Void> {
        private final DocTrees docs;
        private final List<String> missing;
        private final List<String> seen;

        Scanner(DocTrees docs, List<String> missing, List<String> seen) {
            this.docs = docs;
            this.missing = missing;
            this.seen = seen;
        }

        private void check(String name, ModifiersTree modifiers, List<? extends Tree> annotations) {
            TreePath path = getCurrentPath();
            boolean inInterface = path.getParentPath().getLeaf().getKind() == Tree.Kind.INTERFACE;
            boolean overrides = annotations.stream().anyMatch(each -> each.toString().contains("Override"));
            if (overrides || !modifiers.getFlags().contains(Modifier.PUBLIC) && !inInterface || !isReachable(path)) {
                return;
            }
            seen.add(name);
            if (docs.getDocComment(path) == null) {
                missing.add(path.getCompilationUnit().getSourceFile().getName() + ": " + name);
            }
        }

        /** Whether all classes around it are public too. */
        private static boolean isReachable(TreePath path) {
            for (TreePath each = path.getParentPath(); each != null; each = each.getParentPath()) {
                if (each.getLeaf() instanceof ClassTree around
                        && !around.getModifiers().getFlags().contains(Modifier.PUBLIC)) {
                    return false;
                }
            }
            return true;
        }

        @Override
        public Void visitClass(ClassTree tree, Void nothing) {
            check(tree.getSimpleName().toString(), tree.getModifiers(), List.of());
            return super.visitClass(tree, nothing);
        }

        @Override
        public Void visitMethod(MethodTree tree, Void nothing) {
            check(tree.getName().toString(), tree.getModifiers(), tree.getModifiers().getAnnotations());
            return null; // what is in a body is not public
        }

        @Override
        public Void visitVariable(VariableTree tree, Void nothing) {
            check(tree.getName().toString(), tree.getModifiers(), List.of());
            return super.visitVariable(tree, nothing);
        }
    }
}
