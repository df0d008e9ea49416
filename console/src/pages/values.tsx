export default function LastValuesPage() { return <h1>Last values</h1>; }
