import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "node_modules/"] },
  {
    files: ["src/**/*.ts"],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: { "@typescript-eslint/no-floating-promises": "error", eqeqeq: "error" },
  },
  { files: ["test/**/*.js", "*.js"], extends: [tseslint.configs.recommended], rules: { eqeqeq: "error" } },
);
